-- Locks the row for the steps that follow in this transaction, and records whether it did.
-- which: rows to lock; locking, skip: how, and what to do with one that another transaction has locked.
SELECT set_config('lockkit.locked', count(*)::text, true)
FROM (SELECT 1 FROM {table} AS l WHERE l.name = {name} AND ({which}) {locking} {skip}) AS f;

-- Locks the row for the steps that follow in this transaction, and records whether it did.
-- which: rows to lock.
SET @lockkit_locked = 0;
SELECT 1 INTO @lockkit_locked FROM {table} AS l FORCE INDEX (PRIMARY)
WHERE l.name = {name} AND ({which})
LIMIT 1 FOR UPDATE SKIP LOCKED;

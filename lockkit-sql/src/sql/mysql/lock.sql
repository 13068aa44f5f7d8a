-- Locks the row for the steps that follow in this transaction, and records whether it did.
-- which: rows to lock; locking, skip: how, and what to do with one that another transaction has locked.
--
-- 1. Without a lock: the next query would lock a row before it tests it.
SELECT EXISTS (SELECT 1 FROM {table} AS l WHERE l.name = {name} AND ({which})) INTO @lockkit_found;
SET @lockkit_name = NULL, @lockkit_void = NULL;
-- 2. No row has the name null.
SELECT l.name, NOT l.holder <=> '~' INTO @lockkit_name, @lockkit_void
FROM {table} AS l FORCE INDEX (PRIMARY)
WHERE l.name = IF(@lockkit_found, {name}, NULL) AND ({which})
LIMIT 1 {locking} {skip};

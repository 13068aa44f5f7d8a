-- After the acquire, in the same message, for a name that may never have been seen.
-- name, holder, ttl, pinned. Changes a row if the lock is given, with the token as the insert id.
--
-- 1. For the next statement alone: otherwise its look at the row would lock it, and wait.
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
-- 2. An insert without the look before it would wait for whoever has the row locked.
INSERT IGNORE INTO {table} (name, holder, token, expires_at, pinned)
SELECT {name}, {holder}, LAST_INSERT_ID({now}), {now} + {ttl}, {pinned} FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM {table} AS l WHERE l.name = {name});

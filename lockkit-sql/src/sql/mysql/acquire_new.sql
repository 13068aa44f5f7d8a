-- Follows acquire.sql in the same message, for a name that may have no row.
-- name, holder, ttl, session, label. Changes a row if the lock is granted; the insert id is the token.
--
-- 1. For the next statement alone: at a higher level its check for the row would lock it, and wait.
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
-- 2. An insert without the check would wait for a transaction that has the row locked.
INSERT IGNORE INTO {table} (name, holder, token, expires_at, session, label)
SELECT {name}, {holder}, LAST_INSERT_ID({now}), {now} + {ttl}, {session}, {label}
FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM {table} AS l WHERE l.name = {name});

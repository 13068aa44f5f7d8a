-- Takes a lock that is free and was used before, with a token that the caller chose: an answer of rows
-- would wake whoever waits for it once more.
-- 1 name, 2 ticket, 3 lease, 4 token. Changes a row if the lock is given; else acquire.sql asks for the
-- rest.
UPDATE {table} AS l
SET token = ?4, holder = ?2, expires_at = {now} + ?3
WHERE l.name = ?1 AND l.holder IS NULL AND l.token < ?4;

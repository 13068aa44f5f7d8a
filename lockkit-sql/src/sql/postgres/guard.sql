-- In the application's transaction: blocks takeovers until its end, because they change a column of the key.
-- Renewals do not wait.
-- name, holder, token. Returns a row if the lock is still held.
SELECT 1 FROM {table} AS l
WHERE l.name = {name} AND l.holder = {holder} AND l.token = {token}
FOR KEY SHARE;

-- In the application's transaction: ends a hold. Waits for a request that has locked the row.
-- name, holder, token. Changes a row if the lock was still held.
UPDATE {table} AS l FORCE INDEX (PRIMARY)
SET l.holder = NULL, l.session = 0, l.expires_at = LEAST(l.expires_at, {now})
WHERE l.name = {name} AND l.holder = {holder} AND l.token = {token};

-- In the application's transaction: ends a hold. The write lock on the file blocks others until the commit.
-- name, holder, token. Changes a row if the lock was still held.
UPDATE {table} AS l
SET holder = NULL, expires_at = min(l.expires_at, {now})
WHERE l.name = {name} AND l.holder = {holder} AND l.token = {token};

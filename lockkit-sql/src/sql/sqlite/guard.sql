-- In the application's transaction: its write lock on the file blocks takeovers until the commit.
-- name, holder, token. Returns a row if the lock is still held.
UPDATE {table} AS l SET holder = l.holder
WHERE l.name = {name} AND l.holder = {holder} AND l.token = {token}
RETURNING 1;

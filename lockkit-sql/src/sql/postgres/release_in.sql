-- In the application's transaction: waits for a request that has locked the row. release.sql follows, which would
-- skip it, and sees the row as it is then.
-- name, holder, token.
SELECT 1 FROM {table} AS l
WHERE l.name = {name} AND l.holder = {holder} AND l.token = {token}
FOR NO KEY UPDATE;

-- Within the caller's transaction: until it ends, nobody takes the lock over.
-- name, holder, token. Answers a row if the hold stands.
SELECT 1 FROM {table} AS l
WHERE l.name = {name} AND l.holder = {holder} AND l.token = {token}
LOCK IN SHARE MODE;

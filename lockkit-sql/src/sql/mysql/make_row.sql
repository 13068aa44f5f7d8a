-- Inserts the row of a new name, for a transaction that wants to lock it.
-- name.
INSERT IGNORE INTO {table} (name, holder, token, expires_at)
SELECT {name}, NULL, {now}, {now} FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM {table} AS l WHERE l.name = {name});

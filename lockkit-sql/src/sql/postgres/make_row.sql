-- Inserts the row of a new name, for a transaction that wants to lock it.
-- name.
INSERT INTO {table} (name, token, expires_at)
SELECT {name}, {now}, {now}
WHERE NOT EXISTS (SELECT 1 FROM {table} AS n WHERE n.name = {name})
ON CONFLICT DO NOTHING;

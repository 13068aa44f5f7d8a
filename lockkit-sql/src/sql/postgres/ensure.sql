-- Makes the row of a lock that was never used.
-- {name}.
INSERT INTO {table} (name, token, expires_at)
SELECT {name}, {now}, {now}
WHERE NOT EXISTS (SELECT 1 FROM {table} AS n WHERE n.name = {name})
ON CONFLICT DO NOTHING;

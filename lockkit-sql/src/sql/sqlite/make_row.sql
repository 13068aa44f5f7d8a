-- Inserts the row of a new name.
-- name.
INSERT INTO {table} (name, token, expires_at) VALUES ({name}, {now}, {now}) ON CONFLICT DO NOTHING;

-- Returns how long the lease of a held lock lasts.
-- name.
SELECT l.expires_at - {now} FROM {table} AS l WHERE l.name = {name} AND l.holder IS NOT NULL;

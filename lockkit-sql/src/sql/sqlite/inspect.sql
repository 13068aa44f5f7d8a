-- Returns how long the lease of a held lock lasts, and whether it is shared.
-- name.
SELECT l.expires_at - {now}, l.holder = '~' FROM {table} AS l WHERE l.name = {name} AND l.holder IS NOT NULL;

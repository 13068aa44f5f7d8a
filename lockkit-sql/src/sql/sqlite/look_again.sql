-- Returns how long the lease of a held lock lasts.
-- 1 name.
SELECT l.expires_at - {now} FROM {table} AS l WHERE l.name = ?1 AND l.holder IS NOT NULL;

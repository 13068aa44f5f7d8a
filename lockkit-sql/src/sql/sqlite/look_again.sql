-- When a lock that is held becomes free by itself.
-- 1 name.
SELECT l.expires_at - {now} FROM {table} AS l WHERE l.name = ?1 AND l.holder IS NOT NULL;

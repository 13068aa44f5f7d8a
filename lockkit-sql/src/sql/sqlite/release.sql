-- Ends a hold; the row stays, for its token.
-- 1 name, 2 ticket. Answers whether the lease still stood.
UPDATE {table} AS l
SET holder = NULL, expires_at = min(l.expires_at, {now})
WHERE l.name = ?1 AND l.holder = ?2
RETURNING expires_at >= {now};

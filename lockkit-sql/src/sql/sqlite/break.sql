-- Ends the hold of any holder.
-- 1 name, 2 the holder that was seen.
UPDATE {table} AS l
SET holder = NULL, expires_at = {now}
WHERE l.name = ?1 AND l.holder = ?2
RETURNING 1;

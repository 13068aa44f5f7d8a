-- Starts a lease anew and never makes it shorter, if it has not ended.
-- 1 name, 2 holder, 3 lease. Returns a row if it did.
UPDATE {table} AS l
SET expires_at = max(l.expires_at, {now} + ?3)
WHERE l.name = ?1 AND l.holder = ?2 AND l.expires_at > {now}
RETURNING 1;

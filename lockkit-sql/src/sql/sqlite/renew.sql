-- Restarts leases that have not ended, and makes none shorter.
-- names, holders, ttl. Returns the holders that it renewed.
-- A holder has one row, so that it need not be paired with its name.
UPDATE {table} AS l
SET expires_at = max(l.expires_at, {now} + {ttl})
WHERE l.name IN ({names}) AND l.holder IN ({holders}) AND l.expires_at > {now}
RETURNING holder, 1;

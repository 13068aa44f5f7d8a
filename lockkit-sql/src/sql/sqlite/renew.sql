-- Restarts leases that have not ended, and makes none shorter.
-- 1 lease, 2 names in hexadecimal, 3 holders, both as JSON arrays. Returns the holders that it renewed.
-- A holder has one row, so that it need not be paired with its name.
UPDATE {table} AS l
SET expires_at = max(l.expires_at, {now} + ?1)
WHERE l.name IN (SELECT unhex(value) FROM json_each(?2))
  AND l.holder IN (SELECT value FROM json_each(?3)) AND l.expires_at > {now}
RETURNING holder;

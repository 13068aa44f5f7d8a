-- Starts several leases anew, those that have not ended, in one transaction.
-- 1 lease; {names} and {holders} are numbered from 2 on. Returns the holders that it renewed.
-- A holder has one row, so that it need not be paired with its name.
UPDATE {table} AS l
SET expires_at = max(l.expires_at, {now} + ?1)
WHERE l.name IN ({names}) AND l.holder IN ({holders}) AND l.expires_at > {now}
RETURNING holder;

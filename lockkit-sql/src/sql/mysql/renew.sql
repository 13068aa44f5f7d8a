-- Restarts leases that have not ended, and makes none shorter. Skips locked rows.
-- names, holders, ttl, count. Returns the holders whose leases have not ended, and whether each was renewed.
--
-- 1. One reading of the clock tells the rows that were renewed from those that were skipped.
SET @lockkit_now = {now};
-- 2. A holder has one row, so that it need not be paired with its name.
UPDATE (
    SELECT name FROM {table} FORCE INDEX (PRIMARY)
    WHERE name IN ({names}) AND holder IN ({holders}) AND expires_at > @lockkit_now
    LIMIT {count} FOR UPDATE SKIP LOCKED
) AS mine STRAIGHT_JOIN {table} AS l FORCE INDEX (PRIMARY) ON l.name = mine.name
SET l.expires_at = GREATEST(l.expires_at, @lockkit_now + {ttl});
-- 3. On the same connection.
SELECT l.holder, l.expires_at >= @lockkit_now + {ttl}
FROM {table} AS l
WHERE l.name IN ({names}) AND l.holder IN ({holders}) AND l.expires_at > {now};

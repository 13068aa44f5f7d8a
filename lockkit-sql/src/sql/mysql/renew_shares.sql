-- Restarts leases of holds beside others that have not ended, and makes none shorter.
-- names, holders, ttl, count; skip: what to do with a row that another transaction has locked. Returns the holders whose leases have not ended, and whether each was renewed.
--
-- 1. One reading of the clock tells the rows that were renewed from those that were skipped.
SET @lockkit_now = {now};
-- 2. The row of the name, and that of the hold.
UPDATE (
    SELECT name FROM {table} FORCE INDEX (PRIMARY)
    WHERE name IN ({names}) AND holder = '~' AND expires_at > @lockkit_now
    LIMIT {count} FOR UPDATE {skip}
) AS mine
STRAIGHT_JOIN {table} AS l FORCE INDEX (PRIMARY) ON l.name = mine.name
STRAIGHT_JOIN {holds} AS h FORCE INDEX (PRIMARY) ON h.name = mine.name
SET h.expires_at = GREATEST(h.expires_at, @lockkit_now + {ttl}),
    l.expires_at = GREATEST(l.expires_at, @lockkit_now + {ttl})
WHERE h.holder IN ({holders}) AND h.token > 0 AND h.expires_at > @lockkit_now;
-- 3. On the same connection.
SELECT h.holder, h.expires_at >= @lockkit_now + {ttl}
FROM {holds} AS h JOIN {table} AS l ON l.name = h.name AND l.holder = '~'
WHERE h.name IN ({names}) AND h.holder IN ({holders}) AND h.token > 0 AND h.expires_at > {now};

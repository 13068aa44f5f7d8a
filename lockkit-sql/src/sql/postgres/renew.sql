-- Restarts leases that have not ended, and makes none shorter. Skips locked rows.
-- names, holders, ttl. Returns the holders whose leases have not ended, and whether each was renewed.
-- A holder has one row, so that it need not be paired with its name.
WITH mine AS (
    SELECT l.name FROM {table} AS l
    WHERE l.name IN ({names}) AND l.holder IN ({holders}) AND l.expires_at > {now}
    -- Passes the locks of our own guarded transactions, which are FOR KEY SHARE.
    FOR NO KEY UPDATE OF l SKIP LOCKED
), renewed AS (
    UPDATE {table} AS l
    SET expires_at = greatest(l.expires_at, {now} + {ttl})
    FROM mine AS m
    WHERE l.name = m.name
    RETURNING l.name
)
SELECT l.holder, r.name IS NOT NULL
FROM {table} AS l LEFT JOIN renewed AS r ON r.name = l.name
WHERE l.name IN ({names}) AND l.holder IN ({holders}) AND (r.name IS NOT NULL OR l.expires_at > {now});

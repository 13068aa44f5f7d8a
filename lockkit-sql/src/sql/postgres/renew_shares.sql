-- Restarts leases of holds beside others that have not ended, and makes none shorter.
-- skip: what to do with a locked row. Steps of others may lock that of such a name nearly always.
-- names, holders, ttl. Returns the holders whose leases have not ended, and whether each was renewed.
WITH mine AS (
    SELECT l.name FROM {table} AS l
    WHERE l.name IN ({names}) AND l.holder = '~' AND l.expires_at > {now}
    -- In the same order as all renewals.
    ORDER BY l.name
    FOR NO KEY UPDATE OF l {skip}
), renewed AS (
    UPDATE {holds} AS h
    SET expires_at = greatest(h.expires_at, {now} + {ttl})
    FROM mine AS m
    WHERE h.name = m.name AND h.holder IN ({holders}) AND h.token > 0 AND h.expires_at > {now}
    RETURNING h.name, h.holder
), prolonged AS (
    -- The clock is read later than for the holds.
    UPDATE {table} AS l
    SET expires_at = greatest(l.expires_at, {now} + {ttl})
    WHERE l.name IN (SELECT r.name FROM renewed AS r)
)
SELECT h.holder, r.name IS NOT NULL
FROM {holds} AS h
JOIN {table} AS l ON l.name = h.name AND l.holder = '~'
LEFT JOIN renewed AS r ON r.name = h.name AND r.holder = h.holder
WHERE h.name IN ({names}) AND h.holder IN ({holders}) AND h.token > 0
  AND (r.name IS NOT NULL OR h.expires_at > {now});

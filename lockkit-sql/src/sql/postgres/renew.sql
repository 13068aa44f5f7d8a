-- Starts leases anew that have not ended, and makes none shorter.
-- {rows}: number, name, ticket, lease of each. Answers for each its number, whether it was renewed and
-- whether it holds: one that holds and was not renewed is locked by somebody, and is not waited for.
WITH wanted (n, name, holder, ttl) AS (
    VALUES {rows}
), mine AS (
    SELECT l.name, w.ttl
    FROM wanted AS w JOIN {table} AS l ON l.name = w.name
    WHERE l.holder = w.holder AND l.expires_at > {now}
    -- Passes the locks of our own guarded transactions, which are FOR KEY SHARE.
    FOR NO KEY UPDATE OF l SKIP LOCKED
), renewed AS (
    UPDATE {table} AS l
    SET expires_at = greatest(l.expires_at, {now} + m.ttl)
    FROM mine AS m
    WHERE l.name = m.name
    RETURNING l.name
)
SELECT w.n, r.name IS NOT NULL, coalesce(l.holder = w.holder AND l.expires_at > {now}, false)
FROM wanted AS w
LEFT JOIN {table} AS l ON l.name = w.name
LEFT JOIN renewed AS r ON r.name = w.name;

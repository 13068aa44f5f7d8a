-- Deletes rows of names that were not used for long. Skips locked rows: of a name whose row is locked it may
-- delete an old note.
-- unused.
{start}
DELETE h FROM (
    SELECT h.name, h.holder
    FROM {holds} AS h LEFT JOIN {table} AS l ON l.name = h.name
    WHERE h.expires_at < {now} - {unused} AND (l.name IS NULL OR l.expires_at < {now} - {unused})
    LIMIT 1000000 FOR UPDATE SKIP LOCKED
) AS unused STRAIGHT_JOIN {holds} AS h FORCE INDEX (PRIMARY) ON h.name = unused.name AND h.holder = unused.holder;
{commit}

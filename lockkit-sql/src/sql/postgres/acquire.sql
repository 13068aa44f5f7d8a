-- Takes a free lock, also one that has no row. If it is held, asks for a notification of its release, and
-- shortens the lease of a holder whose session has ended. Waits for no lock.
-- name, holder, ttl; session: the key of the client's session, or 0; waiting: how long the waiter wants
-- notifications, or 0. Returns the token or null; then of the row: whether it is held, the rest of its lease,
-- the rest of the time of notifications, whether it is shared. Nulls: there was no row.
WITH taken AS (
    UPDATE {table} AS l
    -- A holder that repeats its request keeps its token, and its lease if that is longer.
    SET token = CASE WHEN l.holder = {holder} AND l.expires_at > {now} THEN l.token
                     ELSE greatest(l.token + 1, {now}) END,
        holder = {holder},
        label = {label},
        expires_at = greatest(CASE WHEN l.holder = {holder} THEN l.expires_at END, {now} + {ttl}),
        session = {session}
    -- Skips a row that a guarded transaction or another step has locked.
    WHERE l.ctid = (
        SELECT f.ctid FROM {table} AS f
        WHERE f.name = {name}
          AND (f.holder IS NULL OR f.holder = {holder} OR f.expires_at <= {now})
        FOR UPDATE SKIP LOCKED
    )
    RETURNING l.token
), made AS (
    INSERT INTO {table} (name, holder, token, expires_at, session, label)
    SELECT {name}, {holder}, {now}, {now} + {ttl}, {session}, {label}
    WHERE NOT EXISTS (SELECT 1 FROM {table} AS n WHERE n.name = {name})
    ON CONFLICT DO NOTHING
    RETURNING token
), asked AS (
    {asked}
    RETURNING l.waiting_until, l.expires_at
)
SELECT coalesce(t.token, m.token), (s.holder IS NOT NULL AND s.expires_at > {now}),
       coalesce(a.expires_at, s.expires_at) - {now},
       coalesce(a.waiting_until, s.waiting_until, 0) - {now},
       s.holder = '~'
FROM (SELECT 1) AS one
LEFT JOIN {table} AS s ON s.name = {name}
LEFT JOIN taken AS t ON true
LEFT JOIN made AS m ON true
LEFT JOIN asked AS a ON true;

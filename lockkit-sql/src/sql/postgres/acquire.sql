-- Takes a free lock, also one that has no row, if no ticket waits before this one. Else gives the ticket a place
-- among those that wait, and shortens the lease of a holder whose session has ended. Waits for no lock.
-- name, holder, ttl, room, label; session: the key of the client's session, or 0; window: how long the place
-- lasts, 0 for a ticket that does not wait.
-- Returns the token or null; whether another holds; the rest of its lease; the rest of the place, as far as the row of
-- the name says that there are places; how many are before the ticket; the token of the row and its age; the
-- end of the place. Nulls: there was no row.
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
          AND (f.holder = {holder} AND f.expires_at > {now}
               OR (f.holder IS NULL OR f.expires_at <= {now})
                   AND (f.waiting_until <= {now} OR NOT EXISTS (SELECT 1 {before})))
        FOR UPDATE SKIP LOCKED
    )
    RETURNING l.token
), made AS (
    INSERT INTO {table} (name, holder, token, expires_at, session, label)
    SELECT {name}, {holder}, {now}, {now} + {ttl}, {session}, {label}
    WHERE NOT EXISTS (SELECT 1 FROM {table} AS n WHERE n.name = {name})
    ON CONFLICT DO NOTHING
    RETURNING token
), served AS (
    DELETE FROM {holds} AS h USING taken
    WHERE h.name = {name} AND h.holder = {holder} AND h.token < 0 AND h.token > {withdrawn}
), asked AS (
    {asked}
    RETURNING l.holder, l.expires_at, l.waiting_until
), placed AS (
    INSERT INTO {holds} AS h (name, holder, token, expires_at, session, label)
    SELECT n.name, {holder}, -{now}, {now} + {window}, {session}, {label}
    FROM {table} AS n
    WHERE n.name = {name} AND n.holder IS DISTINCT FROM {holder} AND {window} > 0
      AND NOT EXISTS (SELECT 1 FROM taken)
      AND NOT EXISTS (
          SELECT 1 FROM {holds} AS p
          WHERE p.name = {name} AND p.holder = {holder} AND p.token < 0
            AND p.session = {session} AND p.expires_at > {now} + {window} / 4 * 3)
    ON CONFLICT (name, holder) DO UPDATE
        SET expires_at = greatest(h.expires_at, excluded.expires_at), session = excluded.session
    RETURNING h.expires_at
)
SELECT coalesce(t.token, m.token),
       -- As the row is now, if it was locked.
       CASE WHEN a.expires_at IS NULL THEN s.holder <> {holder} AND s.expires_at > {now}
            ELSE a.holder <> {holder} AND a.expires_at > {now} END,
       coalesce(a.expires_at, s.expires_at) - {now},
       -- `least` leaves nulls out.
       CASE WHEN coalesce(p.expires_at, h.expires_at) > 0
            THEN least(coalesce(p.expires_at, h.expires_at), coalesce(a.waiting_until, s.waiting_until)) - {now} END,
       CASE WHEN s.waiting_until > {now} THEN (SELECT count(*) {before}) ELSE 0 END,
       s.token, {now} - s.token, coalesce(p.expires_at, h.expires_at)
FROM (SELECT 1) AS one
LEFT JOIN {table} AS s ON s.name = {name}
LEFT JOIN {holds} AS h ON h.name = {name} AND h.holder = {holder} AND h.token < 0
LEFT JOIN taken AS t ON true
LEFT JOIN made AS m ON true
LEFT JOIN asked AS a ON true
LEFT JOIN placed AS p ON true;

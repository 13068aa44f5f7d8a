-- Takes a lock that is free, also one that was never used. Else leaves a note that somebody waits, and
-- shortens the lease of a holder whose session has ended.
-- {name}, {holder}, {ttl}; {session}: the key of the client's session, or 0; {note}: how long a waiter's
-- note is good for, or 0 for a mere try.
-- Returns the token if the lock was taken, else null; then what the row is: whether it is held, what is
-- left of its lease, what is left of the note. Nulls: the name was never used.
WITH taken AS (
    UPDATE {table} AS l
    -- A ticket that holds already keeps its token, and its lease if that is longer.
    SET token = CASE WHEN l.holder = {holder} AND l.expires_at > {now} THEN l.token
                     ELSE greatest(l.token + 1, {now}) END,
        holder = {holder},
        expires_at = greatest(CASE WHEN l.holder = {holder} THEN l.expires_at END, {now} + {ttl}),
        session = {session}
    -- A row that a guarded transaction or another step has locked is skipped: never waited for.
    WHERE l.ctid = (
        SELECT f.ctid FROM {table} AS f
        WHERE f.name = {name}
          AND (f.holder IS NULL OR f.holder = {holder} OR f.expires_at <= {now})
        FOR UPDATE SKIP LOCKED
    )
    RETURNING l.token
), made AS (
    INSERT INTO {table} (name, holder, token, expires_at, session)
    SELECT {name}, {holder}, {now}, {now} + {ttl}, {session}
    WHERE NOT EXISTS (SELECT 1 FROM {table} AS n WHERE n.name = {name})
    ON CONFLICT DO NOTHING
    RETURNING token
), noted AS (
    UPDATE {table} AS l
    SET waiting_until = CASE WHEN {note} > 0 THEN {now} + {note} ELSE l.waiting_until END,
        expires_at = CASE WHEN s.ended THEN least(l.expires_at, {now} + {grace}) ELSE l.expires_at END
    FROM (
        SELECT f.name, {ended} AS ended
        FROM {table} AS f
        WHERE f.name = {name} AND f.holder <> {holder} AND f.expires_at > {now}
          AND ({note} > 0 AND f.waiting_until < {now} + {note_left} OR {ended})
        FOR NO KEY UPDATE OF f SKIP LOCKED
    ) AS s
    WHERE l.name = s.name
    RETURNING l.waiting_until, l.expires_at
)
SELECT coalesce(t.token, m.token), (s.holder IS NOT NULL AND s.expires_at > {now}),
       coalesce(n.expires_at, s.expires_at) - {now},
       coalesce(n.waiting_until, s.waiting_until, 0) - {now}
FROM (SELECT 1) AS one
LEFT JOIN {table} AS s ON s.name = {name}
LEFT JOIN taken AS t ON true
LEFT JOIN made AS m ON true
LEFT JOIN noted AS n ON true;

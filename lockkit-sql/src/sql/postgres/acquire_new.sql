-- As acquire.sql, also for a name that was never used, and with a note for the holder.
-- Answers the token if the lock was taken, else null; then what the row was. Nulls: never used.
-- {mark}: a waiter's note is good for so long, or 0 for a mere try; {remark}: it is renewed when less
-- than this is left of it.
WITH taken AS (
    UPDATE {table} AS l
    SET token = CASE WHEN l.holder = {holder} AND l.expires_at > {now} THEN l.token
                     ELSE greatest(l.token + 1, {now}) END,
        holder = {holder},
        expires_at = greatest(CASE WHEN l.holder = {holder} THEN l.expires_at END, {now} + {lease}),
        pinned = {pinned}
    WHERE l.ctid = (
        SELECT f.ctid FROM {table} AS f
        WHERE f.name = {name}
          AND (f.holder IS NULL OR f.holder = {holder} OR f.expires_at <= {now})
        FOR UPDATE SKIP LOCKED
    )
    RETURNING l.token
), made AS (
    INSERT INTO {table} (name, holder, token, expires_at, pinned)
    SELECT {name}, {holder}, {now}, {now} + {lease}, {pinned}
    WHERE NOT EXISTS (SELECT 1 FROM {table} AS n WHERE n.name = {name})
    ON CONFLICT DO NOTHING
    RETURNING token
), noted AS (
    UPDATE {table} AS l
    SET waiting_until = {now} + {mark}
    WHERE l.name = (
        SELECT f.name FROM {table} AS f
        WHERE f.name = {name} AND {mark} > 0 AND f.waiting_until < {now} + {remark}
          AND f.holder <> {holder} AND f.expires_at > {now}
        FOR NO KEY UPDATE SKIP LOCKED
    )
    RETURNING l.waiting_until
)
SELECT coalesce(t.token, m.token), (s.holder IS NOT NULL AND s.expires_at > {now}),
       s.expires_at - {now}, coalesce(s.pinned, false),
       coalesce(n.waiting_until, s.waiting_until, 0) - {now}
FROM (SELECT 1) AS one
LEFT JOIN {table} AS s ON s.name = {name}
LEFT JOIN taken AS t ON true
LEFT JOIN made AS m ON true
LEFT JOIN noted AS n ON true;

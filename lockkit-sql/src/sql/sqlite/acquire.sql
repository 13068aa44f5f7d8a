-- Takes a lock that is free.
-- 1 name, 2 ticket, 3 lease. Answers the token, or no row if somebody else holds.
INSERT INTO {table} AS l (name, holder, token, expires_at)
VALUES (?1, ?2, {now}, {now} + ?3)
ON CONFLICT (name) DO UPDATE SET
    -- A ticket that holds already keeps its token; every other grant has a larger one.
    token = CASE WHEN l.holder = ?2 AND l.expires_at > {now} THEN l.token
                 ELSE max(l.token + 1, {now}) END,
    holder = ?2,
    expires_at = {now} + ?3
WHERE l.holder IS NULL OR l.holder = ?2 OR l.expires_at <= {now}
RETURNING token;

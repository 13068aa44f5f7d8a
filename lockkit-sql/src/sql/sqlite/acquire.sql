-- Takes a free lock, if no ticket waits.
-- name, holder, ttl, label. Returns the token, or no row if another holder has the lock.
--
-- A holder that repeats its request keeps its token, and its lease if that is longer. Every other grant
-- gets a larger token.
INSERT INTO {table} AS l (name, holder, token, expires_at, label)
VALUES ({name}, {holder}, {now}, {now} + {ttl}, {label})
ON CONFLICT (name) DO UPDATE SET
    token = CASE WHEN l.holder = {holder} AND l.expires_at > {now} THEN l.token
                 ELSE max(l.token + 1, {now}) END,
    holder = {holder},
    label = {label},
    expires_at = max(CASE WHEN l.holder = {holder} THEN l.expires_at ELSE 0 END, {now} + {ttl})
WHERE l.holder = {holder} AND l.expires_at > {now}
   OR (l.holder IS NULL OR l.expires_at <= {now}) AND l.waiting_until <= {now}
RETURNING token;

-- Takes a free lock.
-- 1 name, 2 holder, 3 lease. Returns the token, or no row if another holder has the lock.
--
-- A holder that repeats its request keeps its token, and its lease if that is longer. Every other grant
-- gets a larger token.
INSERT INTO {table} AS l (name, holder, token, expires_at)
VALUES (?1, ?2, {now}, {now} + ?3)
ON CONFLICT (name) DO UPDATE SET
    token = CASE WHEN l.holder = ?2 AND l.expires_at > {now} THEN l.token
                 ELSE max(l.token + 1, {now}) END,
    holder = ?2,
    expires_at = max(CASE WHEN l.holder = ?2 THEN l.expires_at ELSE 0 END, {now} + ?3)
WHERE l.holder IS NULL OR l.holder = ?2 OR l.expires_at <= {now}
RETURNING token;

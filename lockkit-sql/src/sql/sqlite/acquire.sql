-- Takes a lock that is free.
-- 1 name, 2 ticket, 3 lease, 4 this moment. Answers the token, or no row if somebody else holds.
--
-- The clock of the statement knows milliseconds alone: in one of them a row that was deleted would begin
-- again below the tokens that the caller chose for it.
INSERT INTO {table} AS l (name, holder, token, expires_at)
VALUES (?1, ?2, max({now}, ?4), {now} + ?3)
ON CONFLICT (name) DO UPDATE SET
    -- A ticket that holds already keeps its token, and its lease if that is longer; every other grant
    -- has a larger token.
    token = CASE WHEN l.holder = ?2 AND l.expires_at > {now} THEN l.token
                 ELSE max(l.token + 1, {now}, ?4) END,
    holder = ?2,
    expires_at = max(CASE WHEN l.holder = ?2 THEN l.expires_at ELSE 0 END, {now} + ?3)
WHERE l.holder IS NULL OR l.holder = ?2 OR l.expires_at <= {now}
RETURNING token;

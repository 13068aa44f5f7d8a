-- Ends a hold, and gives the lock to the tickets at the front of those that wait: an exclusive one, or all that fit
-- beside each other. The row stays, for its token.
-- name, holder; token_too: what else must hold. Returns a row if the ticket held the lock: whether its lease had not ended.
WITH mine AS (
    SELECT m.ctid, m.expires_at, m.waiting_until, greatest(m.token + 1, {now}) AS next FROM {table} AS m
    WHERE m.name = {name} AND m.holder = {holder} {token_too}
    -- Skips a row that another transaction has locked.
    FOR NO KEY UPDATE SKIP LOCKED
), clear AS (
    -- A grant must not pass guarded transactions, which lock the key.
    SELECT m.next, 0 AS holding FROM mine AS m, {table} AS c
    WHERE c.name = {name} AND c.ctid = m.ctid AND m.waiting_until > {now}
    FOR UPDATE OF c SKIP LOCKED
), {front}, served AS (
    DELETE FROM {holds} AS h USING mine AS m
    WHERE h.name = {name} AND (h.holder = {holder} AND h.token > {withdrawn}
        OR EXISTS (SELECT 1 FROM clear) AND (h.token >= 0 OR h.expires_at <= {now}
            OR h.holder = (SELECT t.holder FROM told AS t)))
)
UPDATE {table} AS l
SET holder = t.holder,
    label = t.label,
    session = t.session,
    token = coalesce(t.token, l.token),
    expires_at = coalesce(t.expires_at, least(l.expires_at, {now}))
FROM mine AS m, told AS t
WHERE l.ctid = m.ctid
RETURNING m.expires_at >= (extract(epoch FROM statement_timestamp()) * 1000000)::bigint;

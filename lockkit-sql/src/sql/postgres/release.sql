-- Ends a hold, and makes the first ticket that waits the holder. If that one shares, the row says `~` as if it held: then
-- only tickets that share take it. The row stays, for its token.
-- name, holder. Notifies the channel of the table if a client waits. Returns a row if the ticket held the lock:
-- whether its lease had not ended.
-- Without a grant the commit does not wait for the disk: the next grant does, for both. A crash of the server can
-- only undo a release that no grant has followed, and the lease ends by itself.
WITH mine AS (
    SELECT m.ctid, m.expires_at, m.waiting_until FROM {table} AS m
    WHERE m.name = {name} AND m.holder = {holder}
    -- Skips a row that another transaction has locked.
    FOR NO KEY UPDATE SKIP LOCKED
), clear AS (
    -- A grant must not pass guarded transactions, which lock the key.
    SELECT c.name FROM mine AS m, {table} AS c
    WHERE c.name = {name} AND c.ctid = m.ctid AND m.waiting_until > {now}
    FOR UPDATE OF c SKIP LOCKED
), first AS (
    SELECT h.holder, h.label, h.expires_at, h.room FROM clear AS c, {holds} AS h
    WHERE h.name = {name} AND h.token < 0 AND h.token > {withdrawn} AND h.expires_at > {now}
    ORDER BY h.token DESC
    LIMIT 1
), heir AS (
    SELECT f.* FROM first AS f WHERE f.room IS NULL
), served AS (
    DELETE FROM {holds} AS h USING clear AS c
    WHERE h.name = {name} AND (h.token >= 0 OR h.expires_at <= {now} OR h.holder = (SELECT i.holder FROM heir AS i))
)
UPDATE {table} AS l
SET holder = CASE WHEN f.room IS NULL THEN f.holder ELSE '~' END,
    label = i.label,
    session = 0,
    token = CASE WHEN i.holder IS NULL THEN l.token ELSE greatest(l.token + 1, {now}) END,
    -- Only for the rest of the place: the ticket asks for the whole lease.
    expires_at = coalesce(f.expires_at, least(l.expires_at, {now}))
FROM mine AS m LEFT JOIN first AS f ON true LEFT JOIN heir AS i ON true
WHERE l.ctid = m.ctid
RETURNING m.expires_at >= (extract(epoch FROM statement_timestamp()) * 1000000)::bigint,
          CASE WHEN i.holder IS NOT NULL THEN pg_notify({channel}, 'granted ' || l.token || ' ' || l.holder)
               WHEN l.waiting_until > {now} THEN pg_notify({channel}, encode({name}, 'hex')) END,
          CASE WHEN i.holder IS NULL THEN set_config('synchronous_commit', 'off', true) END;

-- Ends a hold, and gives the lock to the tickets at the front of those that wait: an exclusive one, or all that fit
-- beside each other. The row stays, for its token.
-- name, holder. Notifies the channel of the table if a client waits. Returns a row if the ticket held the lock:
-- whether its lease had not ended.
-- Without a grant the commit does not wait for the disk: the next grant does, for both. A crash of the server can
-- only undo a release that no grant has followed, and the lease ends by itself.
WITH mine AS (
    SELECT m.ctid, m.expires_at, m.waiting_until, greatest(m.token + 1, {now}) AS next FROM {table} AS m
    WHERE m.name = {name} AND m.holder = {holder}
    -- Skips a row that another transaction has locked.
    FOR NO KEY UPDATE SKIP LOCKED
), clear AS (
    -- A grant must not pass guarded transactions, which lock the key.
    SELECT m.next FROM mine AS m, {table} AS c
    WHERE c.name = {name} AND c.ctid = m.ctid AND m.waiting_until > {now}
    FOR UPDATE OF c SKIP LOCKED
), line AS (
    SELECT h.holder, h.label, h.expires_at, h.room, h.session, c.next - 1 + row_number() OVER place AS token,
           row_number() OVER place AS n, first_value(h.room) OVER place IS NULL AS alone
    FROM clear AS c, {holds} AS h
    WHERE h.name = {name} AND h.token < 0 AND h.token > {withdrawn} AND h.expires_at > {now}
      -- An attempt under way may have made a place while its ticket was granted.
      AND h.holder <> {holder}
    WINDOW place AS (ORDER BY h.token DESC, h.holder)
), front AS (
    SELECT f.* FROM (
        SELECT i.*, bool_and(CASE WHEN i.alone THEN i.n = 1 ELSE i.n <= coalesce(i.room, 0) END)
                        OVER (ORDER BY i.n) AS fits
        FROM line AS i
    ) AS f
    WHERE f.fits AND f.n <= 1000
), sharing AS (
    -- Only for the rest of the place: the ticket asks for the whole lease.
    UPDATE {holds} AS h SET token = f.token FROM front AS f
    WHERE h.name = {name} AND h.holder = f.holder AND f.room IS NOT NULL
), served AS (
    DELETE FROM {holds} AS h USING mine AS m
    WHERE h.name = {name} AND (h.holder = {holder} AND h.token > {withdrawn}
        OR EXISTS (SELECT 1 FROM clear) AND (h.token >= 0 OR h.expires_at <= {now}
            OR h.holder = (SELECT f.holder FROM front AS f WHERE f.room IS NULL)))
), told AS (
    SELECT max(f.token) AS token, max(f.expires_at) AS expires_at, coalesce(max(f.session), 0) AS session,
           max(CASE WHEN f.room IS NULL THEN f.holder ELSE '~' END) AS holder,
           count(pg_notify({channel}, 'granted ' || f.token || ' ' || f.session || ' ' || f.expires_at || ' '
                     || f.holder)) AS granted
    FROM front AS f
)
UPDATE {table} AS l
SET holder = t.holder,
    label = (SELECT f.label FROM front AS f WHERE f.room IS NULL),
    session = t.session,
    token = coalesce(t.token, l.token),
    expires_at = coalesce(t.expires_at, least(l.expires_at, {now}))
FROM mine AS m, told AS t
WHERE l.ctid = m.ctid
RETURNING m.expires_at >= (extract(epoch FROM statement_timestamp()) * 1000000)::bigint,
          CASE WHEN t.granted = 0 AND l.waiting_until > {now} THEN pg_notify({channel}, encode({name}, 'hex')) END,
          CASE WHEN t.granted = 0 THEN set_config('synchronous_commit', 'off', true) END;

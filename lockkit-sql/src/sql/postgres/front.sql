-- Grants to the tickets at the front of those that wait: an exclusive one, or all that fit beside each other and beside
-- those that hold.
-- name, holder: of the ticket that is released; mine: the row of the name, if it is locked; clear: the next token, and
-- how many hold together; no row if nothing may be granted; unsynced: how the transaction commits.
-- told: the sums of the grants. Each is notified; if there is none, all clients are that wait, and the commit does not
-- wait for the disk: the next grant does, for both. A crash of the server can only undo a release that no grant has
-- followed, and the lease ends by itself.
front AS (
    SELECT f.* FROM (
        SELECT h.holder, h.label, h.expires_at, h.room, h.session, c.next - 1 + row_number() OVER place AS token,
               c.holding + row_number() OVER place AS together, min(coalesce(h.room, 0)) OVER place AS most,
               row_number() OVER place AS n
        FROM clear AS c, {holds} AS h
        WHERE h.name = {name} AND h.token < 0 AND h.token > {withdrawn} AND h.expires_at > {now}
          -- An attempt under way may have made a place while its ticket was granted.
          AND h.holder <> {holder}
        WINDOW place AS (ORDER BY h.token DESC, h.holder)
    ) AS f
    WHERE (f.together <= f.most OR f.together = 1 AND f.room IS NULL) AND f.n <= 1000
), sharing AS (
    -- Only for the rest of the place: the ticket asks for the whole lease.
    UPDATE {holds} AS h SET token = f.token FROM front AS f
    WHERE h.name = {name} AND h.holder = f.holder AND f.room IS NOT NULL
), told AS (
    SELECT g.*,
           {unsynced},
           CASE WHEN g.granted = 0 AND EXISTS (SELECT 1 FROM mine AS m WHERE m.waiting_until > {now})
                THEN pg_notify({channel}, encode({name}, 'hex')) END
    FROM (
        SELECT max(f.token) AS token, max(f.expires_at) AS expires_at, coalesce(max(f.session), 0) AS session,
               max(CASE WHEN f.room IS NULL THEN f.holder ELSE '~' END) AS holder,
               (SELECT f.label FROM front AS f WHERE f.room IS NULL) AS label,
               count(pg_notify({channel}, 'granted ' || f.token || ' ' || f.session || ' ' || f.expires_at || ' '
                         || f.holder)) AS granted
        FROM front AS f
    ) AS g
)
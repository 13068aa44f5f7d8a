-- Takes a hold beside others, inside of begin.sql.
-- name, holder, ttl, room: how many may hold together; label; waiting.
-- token, until: of a new hold; fits: whether there may be one.
-- Returns the token or null; then whether the ticket was refused, and not only the row locked; how long until
-- the first of those who hold or wait may end.
--
-- 1. Rows that do not count: their leases have ended, or the row of the name does not say that it is shared.
DELETE FROM {holds}
WHERE name = {name} AND {locked} AND (expires_at <= {now} OR token >= 0 AND NOT EXISTS (
    SELECT 1 FROM {table} AS l WHERE l.name = {name} AND l.holder = '~'));
-- 2. A holder that repeats its request keeps its token, and its lease if that is longer.
INSERT INTO {holds} (name, holder, token, expires_at, room, label)
SELECT {name}, {holder}, {token}, {until}, {room}, {label}
FROM {table} AS l
WHERE l.name = {name} AND {locked} AND {fits}
  AND NOT EXISTS (SELECT 1 FROM {holds} AS h WHERE h.name = {name} AND h.holder = {holder});
UPDATE {holds} SET expires_at = {greatest}(expires_at, {now} + {ttl})
WHERE name = {name} AND holder = {holder} AND token > 0 AND {locked};
-- 3. The row of the name ends with the last of its holds.
UPDATE {table}
SET holder = '~', session = 0, label = NULL,
    token = {greatest}(token, (SELECT max(h.token) FROM {holds} AS h WHERE h.name = {name})),
    expires_at = (SELECT max(h.expires_at) FROM {holds} AS h WHERE h.name = {name} AND h.token > 0)
WHERE name = {name} AND {locked} AND EXISTS (
    SELECT 1 FROM {holds} AS h WHERE h.name = {name} AND h.holder = {holder} AND h.token > 0);
{ask}
SELECT (SELECT h.token FROM {holds} AS h
        WHERE h.name = {name} AND h.holder = {holder} AND h.token > 0 AND {locked}),
       {locked} OR l.holder <> '~' AND l.expires_at > {now},
       CASE WHEN l.holder = '~' THEN (SELECT min(h.expires_at) FROM {holds} AS h WHERE h.name = {name})
            ELSE l.expires_at END - {now}
FROM (SELECT 1 AS one) AS o LEFT JOIN {table} AS l ON l.name = {name};

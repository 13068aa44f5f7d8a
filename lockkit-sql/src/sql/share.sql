-- Takes a hold beside others, after lock.sql.
-- name, holder, ttl, room: how many may hold together; label; window: 0.
-- token, until: of a new hold; fits: whether there may be one; refused: whether there may be none, also
-- without a lock on the row.
-- Returns the token or null; then whether the ticket was refused, and not only the row locked; how long until
-- the first of those who hold or wait may end; the rest of the ticket's place; how many are before it; the age of
-- the last hold.
--
-- 1. Rows that do not count: their leases have ended, or the row of the name did not say that it is shared.
DELETE FROM {holds} WHERE name = {mine} AND (expires_at <= {now} OR token >= 0 AND {void});
-- 2. A holder that repeats its request keeps its token, and its lease if that is longer. The hold takes the row of
-- the place.
INSERT INTO {holds} (name, holder, token, expires_at, room, label)
SELECT {name}, {holder}, {token}, {until}, {room}, {label}
FROM {table} AS l
WHERE l.name = {mine} AND {fits}
  AND NOT EXISTS (SELECT 1 FROM {holds} AS h WHERE h.name = {name} AND h.holder = {holder} AND h.token > 0)
{upsert};
UPDATE {holds} SET expires_at = {greatest}(expires_at, {now} + {ttl})
WHERE name = {mine} AND holder = {holder} AND token > 0;
-- 3. The row of the name ends with the last of its holds.
UPDATE {table}
SET holder = '~', session = 0, label = NULL,
    token = {greatest}(token, (SELECT max(h.token) FROM {holds} AS h WHERE h.name = {name})),
    expires_at = (SELECT max(h.expires_at) FROM {holds} AS h WHERE h.name = {name} AND h.token > 0)
WHERE name = {mine} AND EXISTS (
    SELECT 1 FROM {holds} AS h WHERE h.name = {name} AND h.holder = {holder} AND h.token > 0);
{ask}
SELECT (SELECT h.token FROM {holds} AS h WHERE h.name = {mine} AND h.holder = {holder} AND h.token > 0),
       {mine} IS NOT NULL OR {refused},
       CASE WHEN l.holder = '~' THEN (SELECT min(h.expires_at) FROM {holds} AS h
                                           WHERE h.name = {name} AND h.holder <> {holder})
            ELSE l.expires_at END - {now},
       {place}, (SELECT count(*) {before}), {now} - l.token
FROM (SELECT 1 AS one) AS o LEFT JOIN {table} AS l ON l.name = {name};

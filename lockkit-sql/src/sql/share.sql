-- Takes a hold beside others, after lock.sql.
-- name, holder, ttl, room: how many may hold together; label; window: how long a place lasts, or 0.
-- token, until: of a new hold; fits: whether there may be one.
-- placed: what gives a place to a ticket that must wait, where that is not a step of its own. share_seen.sql follows.
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
{placed}

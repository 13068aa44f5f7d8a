-- Gives a ticket that shares a place among those that wait, or keeps its place, unless it holds.
-- name, holder, room, label; window: how long the place lasts, or 0.
INSERT INTO {holds} AS h (name, holder, token, expires_at, room, label)
SELECT {name}, {holder}, -{now}, {now} + {window}, {room}, {label}
FROM {table} AS l
WHERE l.name = {name} AND {window} > 0
  AND NOT EXISTS (SELECT 1 FROM {holds} AS g WHERE g.name = {name} AND g.holder = {holder} AND g.token > 0)
ON CONFLICT (name, holder) DO UPDATE SET expires_at = greatest(h.expires_at, excluded.expires_at)
WHERE h.token < 0;

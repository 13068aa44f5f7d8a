-- Gives an exclusive ticket the lock if it is its turn, and any ticket a place among those that wait, after
-- lock.sql.
-- name, holder, ttl, session, room, label; window: how long the place lasts, 0 for a ticket that does not wait;
-- exclusive: 1, or 0 for a ticket that takes its turn by share.sql.
-- Returns the token or null, and whether the row of the name was locked: else nothing was done.
--
-- 1. Rows whose time is over.
DELETE FROM {holds}
WHERE name = {mine} AND expires_at <= {now} AND token <> 0 AND (token > 0 OR holder <> {holder});
-- 2. A ticket keeps its place.
UPDATE {holds} SET expires_at = {greatest}(expires_at, {now} + {window})
WHERE name = {mine} AND holder = {holder} AND token < 0;
INSERT INTO {holds} (name, holder, token, expires_at, room, label)
SELECT l.name, {holder}, -{now}, {now} + {window}, CASE WHEN {exclusive} = 0 THEN {room} END, {label}
FROM {table} AS l
WHERE l.name = {mine}
  AND NOT EXISTS (SELECT 1 FROM {holds} AS h WHERE h.name = {name} AND h.holder = {holder});
-- 3. The lock, if it is free and no other is before the ticket.
UPDATE {table}
SET token = {greatest}(token + 1, {now}), expires_at = {now} + {ttl}, holder = {holder}, session = {session},
    label = {label}
WHERE name = {mine} AND {exclusive} = 1 AND (holder IS NULL OR expires_at <= {now})
  AND NOT EXISTS (SELECT 1 {before});
DELETE FROM {holds}
WHERE name = {mine} AND holder = {holder} AND token < 0 AND token > {withdrawn}
  AND ({window} = 0 OR EXISTS (SELECT 1 FROM {table} AS l WHERE l.name = {name} AND l.holder = {holder}));
-- 4. Until then the lock is not taken without a look at those that wait.
UPDATE {table} SET waiting_until = {last_place} WHERE name = {mine};
SELECT (SELECT l.token FROM {table} AS l WHERE l.name = {mine} AND l.holder = {holder} AND l.expires_at > {now}),
       {mine} IS NOT NULL;

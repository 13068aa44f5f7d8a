-- Gives a ticket a place among those that wait, or keeps its place, after the row of the name was told of it.
-- name, holder, room, label; exclusive: 1 or 0; window: how long the place lasts.
-- Returns whether the row of the name says so: else another transaction had it locked; whether it is held, and not
-- shared; the rest of the place, and its end.
DELETE FROM {holds} WHERE name = {name} AND holder = {holder} AND token > 0 AND expires_at <= {now};
UPDATE {holds} SET expires_at = {greatest}(expires_at, {now} + {window})
WHERE name = {name} AND holder = {holder} AND token < 0;
INSERT INTO {holds} (name, holder, token, expires_at, room, label)
SELECT {name}, {holder}, -{now}, {now} + {window}, CASE WHEN {exclusive} = 0 THEN {room} END, {label}
FROM {table} AS l
WHERE l.name = {name}
  AND NOT EXISTS (SELECT 1 FROM {holds} AS h WHERE h.name = {name} AND h.holder = {holder});
{committed}
SELECT EXISTS (SELECT 1 FROM {table} AS l WHERE l.name = {name} AND l.waiting_until > {now} + {window} / 2),
       EXISTS (SELECT 1 FROM {table} AS l WHERE l.name = {name} AND l.holder <> '~' AND l.expires_at > {now}),
       {place}, {place_end};

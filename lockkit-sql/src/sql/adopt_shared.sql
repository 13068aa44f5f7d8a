-- Hands a hold beside others over to another ticket. share.sql follows, which also makes a hold beside
-- others of an exclusive one.
-- name, from, holder, room, label.
UPDATE {holds} SET holder = {holder}, label = {label}
WHERE name = {mine} AND holder = {from} AND room = {room} AND token > 0 AND expires_at > {now} AND NOT {void};

-- Deletes the row of a withdrawn ticket whose late attempts are refused no longer.
-- name, holder.
DELETE FROM {holds} WHERE name = {name} AND holder = {holder} AND token < 0;

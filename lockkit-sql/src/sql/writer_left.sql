-- The ticket waits no longer.
-- name, holder.
DELETE FROM {holds} WHERE name = {name} AND holder = {holder};
SELECT {notify};

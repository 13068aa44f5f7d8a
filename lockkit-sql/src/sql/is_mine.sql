-- After a release that changed no row. Returns a row if the ticket still holds: then the row is locked.
-- name, holder.
SELECT 1 FROM {table} AS l WHERE l.name = {name} AND l.holder = {holder};

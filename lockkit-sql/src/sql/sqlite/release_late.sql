-- After a release that changed nothing: removes a holder whose lease has ended.
-- name, holder.
UPDATE {table} SET holder = NULL WHERE name = {name} AND holder = {holder};

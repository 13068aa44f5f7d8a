-- Ends the hold of any holder.
-- name, holder: the one that was seen. Changes a row if it did.
UPDATE {table} AS l
SET holder = NULL, expires_at = {now}
WHERE l.name = {name} AND l.holder = CAST({holder} AS TEXT);

-- Ends a hold whose lease stands, of a lock that nobody else wanted of late: acquire_again.sql
-- says why.
-- name, holder. Changes a row if it did; else release.sql asks for the rest.
--
-- The holder stays in the row, which is changed in its place then; a shorter row is written anew, which
-- costs a tenth of an update.
UPDATE {table} AS l FORCE INDEX (PRIMARY)
SET l.expires_at = 0
WHERE l.name = {name} AND l.holder = {holder} AND l.pinned = 0
  AND l.expires_at >= {begun};

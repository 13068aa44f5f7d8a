-- Shortens the lease of a hold whose session has ended. Skips a locked row.
-- name; wait: no lease is made shorter than this.
UPDATE (
    SELECT l.name FROM {table} AS l FORCE INDEX (PRIMARY)
    WHERE l.name = {name} AND {session_ended}
    LIMIT 1 FOR UPDATE SKIP LOCKED
) AS gone STRAIGHT_JOIN {table} AS l FORCE INDEX (PRIMARY) ON l.name = gone.name
SET l.expires_at = {now} + {wait};

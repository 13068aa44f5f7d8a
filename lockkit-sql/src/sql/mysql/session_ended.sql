-- Shortens the lease of a hold whose session has ended. Skips a locked row.
-- name, session: the one that was seen; wait: how long the lease still lasts.
UPDATE (
    SELECT name FROM {table} FORCE INDEX (PRIMARY)
    WHERE name = {name} AND session = {session} AND session >> 32 = {server}
    LIMIT 1 FOR UPDATE SKIP LOCKED
) AS gone STRAIGHT_JOIN {table} AS l FORCE INDEX (PRIMARY) ON l.name = gone.name
SET l.expires_at = IF(IS_USED_LOCK(CONCAT('lockkit_', {session})) IS NULL,
                      LEAST(l.expires_at, {now} + {wait}), l.expires_at);

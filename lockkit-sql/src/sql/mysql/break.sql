-- Ends a hold, whoever has it. Passes over a row that somebody has locked.
-- name, holder: the one that was seen.
UPDATE (
    SELECT name FROM {table} FORCE INDEX (PRIMARY)
    WHERE name = {name} AND holder = {holder}
    LIMIT 1 FOR UPDATE SKIP LOCKED
) AS seen STRAIGHT_JOIN {table} AS l FORCE INDEX (PRIMARY) ON l.name = seen.name
SET l.holder = NULL, l.expires_at = LEAST(l.expires_at, {now}), l.pinned = 0;

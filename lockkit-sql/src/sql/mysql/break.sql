-- Ends the hold of any holder. Skips a locked row.
-- name, holder: the one that was seen. Changes a row if it did.
UPDATE (
    SELECT name FROM {table} FORCE INDEX (PRIMARY)
    WHERE name = {name} AND holder = {holder}
    LIMIT 1 FOR UPDATE SKIP LOCKED
) AS seen STRAIGHT_JOIN {table} AS l FORCE INDEX (PRIMARY) ON l.name = seen.name
SET l.holder = NULL, l.expires_at = LEAST(l.expires_at, {now}), l.session = 0;

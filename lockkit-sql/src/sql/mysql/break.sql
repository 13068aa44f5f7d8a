-- Ends a hold, whoever has it. Passes over a row that somebody has locked.
-- name, holder: the one that was seen.
UPDATE {table} AS l
JOIN (
    SELECT name FROM {table}
    WHERE name = {name} AND holder = {holder}
    LIMIT 1 FOR UPDATE SKIP LOCKED
) AS seen USING (name)
SET l.holder = NULL, l.expires_at = LEAST(l.expires_at, {now}), l.pinned = 0;

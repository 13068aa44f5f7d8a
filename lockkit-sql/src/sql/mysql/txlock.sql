-- Within the caller's transaction: takes the lock for as long as the transaction lasts. A holder whose
-- lease has ended is taken off, so that none of its guarded transactions commits later.
-- name. Changes a row if nobody holds.
UPDATE (
    SELECT name FROM {table} FORCE INDEX (PRIMARY)
    WHERE name = {name} AND (holder IS NULL OR expires_at <= {now} OR pinned <> 0)
    LIMIT 1 FOR UPDATE SKIP LOCKED
) AS free STRAIGHT_JOIN {table} AS l FORCE INDEX (PRIMARY) ON l.name = free.name
SET l.holder = NULL, l.pinned = 0;

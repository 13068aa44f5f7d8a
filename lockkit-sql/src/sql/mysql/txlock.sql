-- In the application's transaction: takes the lock for as long as the transaction lasts. It removes a
-- holder whose lease has ended, so that no guarded transaction of that holder commits later.
-- name. Changes a row if the lock is free.
UPDATE (
    SELECT name FROM {table} FORCE INDEX (PRIMARY)
    WHERE name = {name} AND (holder IS NULL OR expires_at <= {now})
    LIMIT 1 FOR UPDATE SKIP LOCKED
) AS free STRAIGHT_JOIN {table} AS l FORCE INDEX (PRIMARY) ON l.name = free.name
SET l.holder = NULL, l.session = 0;

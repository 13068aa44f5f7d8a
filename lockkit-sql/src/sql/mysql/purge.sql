-- Deletes what nobody has used for long, but not what somebody has locked.
-- unused.
--
-- The token is about the time of the last grant: the end of a lease may be 0.
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DELETE l FROM (
    SELECT name FROM {table}
    WHERE GREATEST(expires_at, token) < {now} - {unused}
    LIMIT 1000000 FOR UPDATE SKIP LOCKED
) AS unused STRAIGHT_JOIN {table} AS l FORCE INDEX (PRIMARY) ON l.name = unused.name;

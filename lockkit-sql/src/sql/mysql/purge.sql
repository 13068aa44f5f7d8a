-- Deletes what nobody has used for long, but not what somebody has locked.
-- unused.
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DELETE l FROM {table} AS l
JOIN (
    SELECT name FROM {table}
    WHERE expires_at < {now} - {unused}
    LIMIT 1000000 FOR UPDATE SKIP LOCKED
) AS unused USING (name);

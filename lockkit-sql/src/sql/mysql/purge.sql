-- Deletes rows that were not used for long. Skips locked rows.
-- unused.
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DELETE l FROM (
    SELECT name FROM {table}
    WHERE expires_at < {now} - {unused}
    LIMIT 1000000 FOR UPDATE SKIP LOCKED
) AS unused STRAIGHT_JOIN {table} AS l FORCE INDEX (PRIMARY) ON l.name = unused.name;

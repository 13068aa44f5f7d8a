-- Deletes rows that were not used for long. Skips locked rows.
-- unused.
WITH unused AS (
    SELECT l.name FROM {table} AS l
    WHERE l.expires_at < {now} - {unused}
    FOR UPDATE SKIP LOCKED
)
DELETE FROM {table} AS l USING unused AS u WHERE l.name = u.name;

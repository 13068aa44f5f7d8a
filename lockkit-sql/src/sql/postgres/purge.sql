-- Deletes what nobody has used for long.
-- {age}. Answers how many.
WITH old AS (
    SELECT l.name FROM {table} AS l
    WHERE l.expires_at < {now} - {age}
    FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM {table} AS l USING old AS o WHERE l.name = o.name RETURNING 1
)
SELECT count(*) FROM gone;

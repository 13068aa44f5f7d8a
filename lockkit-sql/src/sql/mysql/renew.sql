-- Starts leases anew, those that have not ended and whose rows nobody has locked.
-- names, holders, ttl, count. Answers twice: nothing, and how many.
--
-- 1. One reading of the clock, by which the rows that were changed can be told from those that were
--    passed over.
SET @lockkit_now = {now};
-- 2. A holder has one row, so that it need not be paired with its name.
UPDATE {table} AS l
JOIN (
    SELECT name FROM {table}
    WHERE name IN ({names}) AND holder IN ({holders}) AND expires_at > @lockkit_now
    LIMIT {count} FOR UPDATE SKIP LOCKED
) AS mine USING (name)
SET l.expires_at = @lockkit_now + {ttl};

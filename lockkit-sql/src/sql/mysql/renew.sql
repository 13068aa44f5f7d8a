-- Starts leases anew and makes none shorter, those that have not ended and whose rows nobody has locked.
-- names, holders, ttl, count. Answers twice: nothing, and how many.
--
-- 1. One reading of the clock, by which the rows that were changed can be told from those that were
--    passed over.
SET @lockkit_now = {now};
-- 2. A holder has one row, so that it need not be paired with its name.
UPDATE (
    SELECT name FROM {table} FORCE INDEX (PRIMARY)
    WHERE name IN ({names}) AND holder IN ({holders}) AND expires_at > @lockkit_now
    LIMIT {count} FOR UPDATE SKIP LOCKED
) AS mine STRAIGHT_JOIN {table} AS l FORCE INDEX (PRIMARY) ON l.name = mine.name
SET l.expires_at = GREATEST(l.expires_at, @lockkit_now + {ttl});

-- Deletes what nobody has used for long.
-- 1 how long. Answers a row for each.
DELETE FROM {table} WHERE expires_at < {now} - ?1
RETURNING 1;

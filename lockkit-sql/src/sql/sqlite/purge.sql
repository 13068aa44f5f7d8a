-- Deletes rows that were not used for long.
-- 1 how long. Returns a row for each.
DELETE FROM {table} WHERE expires_at < {now} - ?1
RETURNING 1;

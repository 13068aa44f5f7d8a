-- Deletes rows that were not used for long.
-- unused.
DELETE FROM {table} WHERE expires_at < {now} - {unused};

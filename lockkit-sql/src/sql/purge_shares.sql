-- Deletes rows of names that were not used for long.
-- unused.
{start}
DELETE FROM {holds}
WHERE expires_at < {now} - {unused}
  AND name NOT IN (SELECT l.name FROM {table} AS l WHERE l.expires_at >= {now} - {unused});
{commit}

-- Lists holds.
-- 1 the name, or null; 2 the prefix of names.
SELECT l.name, l.holder, l.token, l.expires_at - {now}
FROM {table} AS l
WHERE l.holder IS NOT NULL AND l.expires_at > {now}
  AND (l.name = ?1 OR (?1 IS NULL AND substr(l.name, 1, length(?2)) = ?2))
ORDER BY l.name;

-- Looks at what is held.
-- {condition} on the name.
SELECT l.name, l.holder, l.token, l.expires_at - {now}, l.pinned
FROM {table} AS l
WHERE {condition} AND l.holder IS NOT NULL
  AND (l.expires_at > {now}
       -- A pin that lives cannot be locked.
       OR (l.pinned AND NOT EXISTS (
           SELECT 1 FROM {table} AS p WHERE p.name = l.name FOR SHARE SKIP LOCKED)))
ORDER BY l.name;

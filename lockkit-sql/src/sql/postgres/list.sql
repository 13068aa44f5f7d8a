-- Lists holds. Waits for no lock.
-- condition: on the name.
SELECT l.name, l.holder, l.token, l.expires_at - {now}
FROM {table} AS l
WHERE {condition} AND l.holder IS NOT NULL AND l.expires_at > {now}
ORDER BY l.name;

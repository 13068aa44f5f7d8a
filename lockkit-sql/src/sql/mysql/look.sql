-- Lists holds. Waits for no lock.
-- what: a condition on the name.
SELECT l.name, l.holder, l.token, l.expires_at - {now}
FROM {table} AS l
WHERE l.holder IS NOT NULL AND l.expires_at > {now} AND {what}
ORDER BY l.name;

-- Looks at what is held. Waits for nobody.
-- what: a condition on the name.
SELECT l.name, l.holder, l.token, l.expires_at - {now}, l.pinned
FROM {table} AS l
WHERE l.holder IS NOT NULL AND (l.expires_at > {now} OR l.pinned <> 0) AND {what}
ORDER BY l.name;

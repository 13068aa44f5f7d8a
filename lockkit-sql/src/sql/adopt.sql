-- Hands an exclusive hold over to another ticket, after lock.sql. The token stays.
-- name, from, holder, ttl, label. Returns the token or null, and whether the row of the name was locked, or the ticket
-- has no hold to take over: else nothing was done.
UPDATE {table}
SET holder = {holder}, session = 0, label = {label}, expires_at = {greatest}(expires_at, {now} + {ttl})
WHERE name = {mine};
SELECT (SELECT l.token FROM {table} AS l WHERE l.name = {mine} AND l.holder = {holder}),
       {mine} IS NOT NULL OR NOT EXISTS (
           SELECT 1 FROM {table} AS l
           WHERE l.name = {name} AND l.holder IN ({from}, {holder}) AND l.expires_at > {now}),
       NULL;

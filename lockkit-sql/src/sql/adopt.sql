-- Hands an exclusive hold over to another ticket, inside of begin.sql. The token stays.
-- name, from, holder, ttl, label. Returns the token or null, and whether the row was locked.
UPDATE {table}
SET holder = {holder}, session = 0, label = {label}, expires_at = {greatest}(expires_at, {now} + {ttl})
WHERE name = {name} AND {locked};
SELECT (SELECT l.token FROM {table} AS l WHERE l.name = {name} AND l.holder = {holder}),
       {locked} OR NOT EXISTS (
           SELECT 1 FROM {table} AS l WHERE l.name = {name} AND l.holder = {from} AND l.expires_at > {now}), 0;

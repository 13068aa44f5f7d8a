-- After unshare.sql or share.sql: gives what it made free to those that wait.
-- name, holder. Returns no rows.
WITH mine AS (
    SELECT l.waiting_until, greatest(l.token + 1, {now}) AS next FROM {table} AS l WHERE l.name = {mine}
), clear AS (
    SELECT m.next,
           (SELECT count(*) FROM {holds} AS h WHERE h.name = {name} AND h.token > 0 AND h.expires_at > {now}) AS holding
    FROM mine AS m
    WHERE m.waiting_until > {now}
), {front}, served AS (
    DELETE FROM {holds} AS h WHERE h.name = {name} AND h.holder = (SELECT t.holder FROM told AS t)
)
UPDATE {table} AS l
SET holder = t.holder, label = t.label, session = t.session, token = t.token,
    expires_at = greatest(l.expires_at, t.expires_at)
FROM told AS t
WHERE l.name = {mine} AND t.granted > 0;

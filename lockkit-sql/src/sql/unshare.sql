-- Ends a hold beside others, after lock.sql.
-- name, holder. Returns whether the ticket held, and whether the row of the name was locked, or the ticket did not hold:
-- else nothing was done.
SELECT s.held, {mine} IS NOT NULL OR NOT s.held FROM (SELECT EXISTS (
    SELECT 1 FROM {holds} AS h JOIN {table} AS l ON l.name = h.name
    WHERE h.name = {name} AND h.holder = {holder} AND h.token > 0 AND h.expires_at > {now} AND l.holder = '~'
) AS held) AS s;
DELETE FROM {holds} WHERE name = {mine} AND holder = {holder};
UPDATE {table}
SET holder = CASE WHEN EXISTS (
        SELECT 1 FROM {holds} AS h WHERE h.name = {name} AND h.token > 0 AND h.expires_at > {now}) THEN '~' END,
    expires_at = coalesce(
        (SELECT max(h.expires_at) FROM {holds} AS h WHERE h.name = {name} AND h.token > 0), {now})
WHERE name = {mine};

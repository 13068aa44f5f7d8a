-- Starts one lease anew and never makes it shorter, if it has not ended and nobody has its row locked, in the words of either
-- server: `acquire.sql` says why.
-- name, holder, ttl. Changes a row if it did.
UPDATE
/*!80001 (
    SELECT name FROM {table} FORCE INDEX (PRIMARY)
    WHERE name = {name} AND holder = {holder} AND expires_at > {now}
    LIMIT 1 FOR UPDATE SKIP LOCKED
) AS mine STRAIGHT_JOIN */
{table} AS l FORCE INDEX (PRIMARY)
/*!80001 ON l.name = mine.name */
SET l.expires_at = GREATEST(l.expires_at, {now} + {ttl})
/*M!100600 WHERE l.name = {name} AND l.name = (SELECT name FROM (
    SELECT name FROM {table} FORCE INDEX (PRIMARY)
    WHERE name = {name} AND holder = {holder} AND expires_at > {now}
    LIMIT 1 FOR UPDATE SKIP LOCKED
) AS mine) */;

-- Ends a hold. The row stays, for its token. Skips a locked row, as acquire.sql explains.
-- name, holder. Changes a row if the ticket held the lock; the insert id is 2 if its lease had not ended,
-- else 1.
UPDATE
/*!80001 (
    SELECT name FROM {table} FORCE INDEX (PRIMARY)
    WHERE name = {name} AND holder = {holder}
    LIMIT 1 FOR UPDATE SKIP LOCKED
) AS mine STRAIGHT_JOIN */
{table} AS l FORCE INDEX (PRIMARY)
/*!80001 ON l.name = mine.name */
SET l.session = 0 * LAST_INSERT_ID(IF(l.expires_at >= {now}, 2, 1)),
    l.holder = NULL,
    l.expires_at = LEAST(l.expires_at, {now})
/*M!100600 WHERE l.name = {name} AND l.name = (SELECT name FROM (
    SELECT name FROM {table} FORCE INDEX (PRIMARY)
    WHERE name = {name} AND holder = {holder}
    LIMIT 1 FOR UPDATE SKIP LOCKED
) AS mine) */;

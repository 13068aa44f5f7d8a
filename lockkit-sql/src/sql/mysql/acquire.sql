-- Takes a free lock, if no ticket waits.
-- name, holder, ttl, session, label. Changes a row if the lock is granted; the insert id is the token.
--
-- The row is updated only if no transaction has it locked: the inner query skips a locked row, if the
-- server runs it by itself and first. MySQL does so with a join in a fixed order, and the limit keeps it
-- from merging the two queries; in a condition it would wait. MariaDB does so in a condition, and needs a
-- millisecond for the join; the name is repeated, or it would scan the whole table. Each server reads its
-- own comments.
-- `SET STATEMENT innodb_lock_wait_timeout = 0 FOR ..` would be half the work, but each refusal is an error
-- in the server's log.
-- A holder that repeats its request keeps its token, and its lease if that is longer. Every other grant
-- gets a larger token. The holder is set last: later assignments see earlier ones.
UPDATE
/*!80001 (
    SELECT name FROM {table} FORCE INDEX (PRIMARY)
    WHERE name = {name} AND {may}
    LIMIT 1 FOR UPDATE SKIP LOCKED
) AS free STRAIGHT_JOIN */
{table} AS l FORCE INDEX (PRIMARY)
/*!80001 ON l.name = free.name */
SET l.token = LAST_INSERT_ID(
        IF(l.holder = {holder} AND l.expires_at > {now}, l.token, GREATEST(l.token + 1, {now}))),
    l.expires_at = IF(l.holder = {holder}, GREATEST(l.expires_at, {now} + {ttl}), {now} + {ttl}),
    l.holder = {holder},
    l.label = {label},
    l.session = {session}
/*M!100600 WHERE l.name = {name} AND l.name = (SELECT name FROM (
    SELECT name FROM {table} FORCE INDEX (PRIMARY)
    WHERE name = {name} AND {may}
    LIMIT 1 FOR UPDATE SKIP LOCKED
) AS free) */;

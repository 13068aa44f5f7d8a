-- Takes a lock that is free.
-- name, holder, ttl, pinned. Changes a row if the lock is given, with the token as the insert id.
--
-- The row that is there, if it is free and nobody has it locked: the inner query passes over a locked
-- row, if it is carried out by itself and first. MySQL does so with a join in a fixed order, and the
-- limit keeps it from merging the two; in a condition it would wait. MariaDB does so in a condition,
-- and needs a millisecond for the join; the name stands there twice, or it would look through the
-- whole table. Each reads its own words, and takes the other's for a comment.
-- To refuse to wait (`SET STATEMENT innodb_lock_wait_timeout = 0 FOR ..`) would be half the work, but
-- each refusal is an error in the server's log.
-- A ticket that holds already keeps its token, and its lease if that is longer; every other grant has a
-- larger token. The holder comes after both: what is set later sees what was set before.
UPDATE
/*!80001 (
    SELECT name FROM {table} FORCE INDEX (PRIMARY)
    WHERE name = {name}
      AND (holder IS NULL OR holder = {holder} OR expires_at <= {now} OR pinned <> 0)
    LIMIT 1 FOR UPDATE SKIP LOCKED
) AS free STRAIGHT_JOIN */
{table} AS l FORCE INDEX (PRIMARY)
/*!80001 ON l.name = free.name */
SET l.token = LAST_INSERT_ID(
        IF(l.holder = {holder} AND l.expires_at > {now}, l.token, GREATEST(l.token + 1, {now}))),
    l.expires_at = IF(l.holder = {holder}, GREATEST(l.expires_at, {now} + {ttl}), {now} + {ttl}),
    l.holder = {holder},
    l.pinned = {pinned}
/*M!100600 WHERE l.name = {name} AND l.name = (SELECT name FROM (
    SELECT name FROM {table} FORCE INDEX (PRIMARY)
    WHERE name = {name}
      AND (holder IS NULL OR holder = {holder} OR expires_at <= {now} OR pinned <> 0)
    LIMIT 1 FOR UPDATE SKIP LOCKED
) AS free) */;

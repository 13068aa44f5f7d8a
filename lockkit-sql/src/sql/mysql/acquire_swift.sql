-- As acquire.sql for a lease, in the words of MariaDB alone and with half the work: it does not look
-- for a row that nobody has locked, it refuses to wait for one. Error 1205 says that the row is locked.
-- Nothing waits, so that the moment at which the statement began is good enough for its clock.
-- name, holder, ttl.
SET STATEMENT innodb_lock_wait_timeout = 0 FOR
UPDATE {table} AS l FORCE INDEX (PRIMARY)
SET l.token = LAST_INSERT_ID(
        IF(l.holder = {holder} AND l.expires_at > {now}, l.token, GREATEST(l.token + 1, {now}))),
    l.holder = {holder},
    l.expires_at = {now} + {ttl},
    l.pinned = {pinned}
WHERE l.name = {name}
  AND (l.holder IS NULL OR l.holder = {holder} OR l.expires_at <= {now} OR l.pinned <> 0);

-- As release.sql, in the words of MariaDB alone: acquire_swift.sql says how.
-- name, holder.
SET STATEMENT innodb_lock_wait_timeout = 0 FOR
UPDATE {table} AS l FORCE INDEX (PRIMARY)
SET l.pinned = 0 * LAST_INSERT_ID(IF(l.expires_at >= {now} OR l.pinned <> 0, 2, 1)),
    l.holder = NULL,
    l.expires_at = LEAST(l.expires_at, {now})
WHERE l.name = {name} AND l.holder = {holder};

-- Takes a free lock for an exclusive ticket whose turn it is, after lock.sql. turn_seen.sql follows.
-- name, holder, ttl, session, room, label.
-- It may hold since an attempt without a reply.
UPDATE {table} SET expires_at = {greatest}(expires_at, {now} + {ttl}), session = {session}
WHERE name = {mine} AND holder = {holder} AND expires_at > {now};
UPDATE {table}
SET token = {greatest}(token + 1, {now}), expires_at = {now} + {ttl}, holder = {holder}, session = {session},
    label = {label}
WHERE name = {mine} AND (holder IS NULL OR expires_at <= {now}) AND NOT EXISTS (SELECT 1 {before});
-- Its place, and rows whose time is over. With the name itself, the last query would wait for a locked row.
DELETE FROM {holds}
WHERE name = {mine} AND (
    expires_at <= {now} AND (token > 0 OR token < 0 AND holder <> {holder})
    OR holder = {holder} AND token < 0 AND token > {withdrawn}
        AND EXISTS (SELECT 1 FROM {table} AS l WHERE l.name = {mine} AND l.holder = {holder}));
UPDATE {table} SET waiting_until = {last_place} WHERE name = {mine};

-- Takes a free lock for an exclusive ticket whose turn it is, after lock.sql.
-- name, holder, ttl, session, room, label. Returns the token or null, and whether the row of the name was locked: else
-- nothing was done.
-- It may hold since an attempt without a reply.
UPDATE {table} SET expires_at = {greatest}(expires_at, {now} + {ttl}), session = {session}
WHERE name = {mine} AND holder = {holder} AND expires_at > {now};
UPDATE {table}
SET token = {greatest}(token + 1, {now}), expires_at = {now} + {ttl}, holder = {holder}, session = {session},
    label = {label}
WHERE name = {mine} AND (holder IS NULL OR expires_at <= {now}) AND NOT EXISTS (SELECT 1 {before});
-- Its place, and rows whose time is over.
DELETE FROM {holds}
WHERE name = {mine} AND (
    expires_at <= {now} AND (token > 0 OR token < 0 AND holder <> {holder})
    OR holder = {holder} AND token < 0 AND token > {withdrawn}
        AND EXISTS (SELECT 1 FROM {table} AS l WHERE l.name = {name} AND l.holder = {holder}));
UPDATE {table} SET waiting_until = {last_place} WHERE name = {mine};
SELECT (SELECT l.token FROM {table} AS l WHERE l.name = {mine} AND l.holder = {holder} AND l.expires_at > {now}),
       {mine} IS NOT NULL;

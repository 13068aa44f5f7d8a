-- Takes a lock that release_again.sql gave back, and that nobody else wanted of late.
-- name, holder, ttl. Changes a row if the lock is given, with the token as the insert id; else
-- acquire.sql asks for the rest.
--
-- To pass over a locked row costs as much as half an update. Here it is waited for, a second at most, which
-- is the limit of the session. But after a tenth of it the lock is not given any more: whoever asked for it
-- may have given up. The clock is that of the statement's beginning.
UPDATE {table} AS l FORCE INDEX (PRIMARY)
SET l.token = LAST_INSERT_ID(GREATEST(l.token + 1, {begun})),
    l.holder = {holder},
    l.expires_at = {begun} + {ttl}
WHERE l.name = {name} AND l.expires_at = 0
  AND TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)) < 100000;

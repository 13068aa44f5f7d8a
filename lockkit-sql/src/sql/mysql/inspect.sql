-- The row of a lock that was not granted or not released. Waits for no lock.
-- name, holder. Returns whether the ticket holds, whether any holder does, the rest of the lease, and the
-- session of the hold if this server knows that it has ended, else 0; whether it is shared.
SELECT l.holder <=> {holder}, l.holder IS NOT NULL, l.expires_at - {now},
       IF(l.session >> 32 = {server} AND IS_USED_LOCK(CONCAT('lockkit_', l.session)) IS NULL, l.session, 0),
       l.holder <=> '~'
FROM {table} AS l WHERE l.name = {name};

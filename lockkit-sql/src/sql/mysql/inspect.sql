-- The row of a lock that was not granted or not released. Waits for no lock.
-- name, holder, room. Returns whether the ticket holds, whether another does, the rest of its lease, the rest of the
-- ticket's place as far as the row of the name says that there are places, how many are before it, the token and its age; the end of the place, which nobody needs here; whether
-- any wait; the session of the hold if this server knows that it has ended, else 0.
SELECT l.holder <=> {holder}, l.holder IS NOT NULL AND NOT l.holder <=> {holder} AND l.expires_at > {now},
       l.expires_at - {now}, LEAST({place_end}, l.waiting_until) - {now}, (SELECT count(*) {before}), l.token, {now} - l.token, NULL,
       l.waiting_until > {now},
       IF(l.session >> 32 = {server} AND IS_USED_LOCK(CONCAT('lockkit_', l.session)) IS NULL, l.session, 0)
FROM {table} AS l WHERE l.name = {name};

-- The row of a lock that was not granted.
-- name, holder, room. Returns whether the ticket holds, whether another does, the rest of its lease, the rest of the
-- ticket's place, how many are before it, whether any wait, the token and its age.
SELECT l.holder IS {holder}, l.holder IS NOT NULL AND l.holder IS NOT {holder} AND l.expires_at > {now},
       l.expires_at - {now}, {place}, (SELECT count(*) {before}), l.waiting_until > {now}, l.token, {now} - l.token
FROM {table} AS l WHERE l.name = {name};

-- The row of a lock that was not granted.
-- name, holder, room. Returns whether the ticket holds, whether another does, the rest of its lease, the rest of the
-- ticket's place, how many are before it, the token and its age; the end of the place, which nobody needs here; whether
-- any wait.
SELECT l.holder IS {holder}, l.holder IS NOT NULL AND l.holder IS NOT {holder} AND l.expires_at > {now},
       l.expires_at - {now}, {place}, (SELECT count(*) {before}), l.token, {now} - l.token, NULL,
       l.waiting_until > {now}
FROM {table} AS l WHERE l.name = {name};

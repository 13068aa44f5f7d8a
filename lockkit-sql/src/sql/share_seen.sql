-- What became of a ticket. Waits for no lock.
-- name, holder, room; window: how long a place lasts, or 0. refused: whether it may not hold, also without a lock on the
-- row; mine: the name if the row was locked before, else null; session_ended: whether the holder's session has, and its
-- lease is to be shortened.
-- Returns the token or null; then whether the ticket was refused, and not only the row locked; how long until the
-- first of those who hold or wait may end; the rest of the ticket's place, if the row of the name tells of it for long
-- enough; how many are before it; the token of the row and its age; the end of the place; session_ended;
-- whether the row of the name tells of all places.
SELECT (SELECT h.token FROM {holds} AS h WHERE h.name = {mine} AND h.holder = {holder} AND h.token > 0),
       {mine} IS NOT NULL OR {refused},
       CASE WHEN l.holder = '~' THEN (SELECT min(h.expires_at) FROM {holds} AS h
                                           WHERE h.name = {name} AND h.holder <> {holder}
                                             AND h.token <> 0 AND h.expires_at > {now})
            ELSE l.expires_at END - {now},
       CASE WHEN l.waiting_until > {now} + {window} / 3 THEN {place} END, (SELECT count(*) {before}), l.token, {now} - l.token,
       {place_end}, {session_ended}, 1 = 1
FROM (SELECT 1 AS one) AS o LEFT JOIN {table} AS l ON l.name = {name};

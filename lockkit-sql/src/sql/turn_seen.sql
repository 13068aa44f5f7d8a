-- What became of an exclusive ticket that nothing tells of its turn. Waits for no lock. A waiter sends it with each poll.
-- The parameters and the columns are those of share_seen.sql; no ticket needs the end of its place.
SELECT CASE WHEN {mine} IS NOT NULL AND l.holder = {holder} AND l.expires_at > {now} THEN l.token END,
       {mine} IS NOT NULL OR CASE WHEN l.holder IS NOT NULL AND l.expires_at > {now} THEN l.holder <> {holder}
                                  ELSE EXISTS (SELECT 1 {before}) END,
       l.expires_at - {now}, CASE WHEN l.waiting_until > {now} + {window} / 3 THEN {place} END,
       (SELECT count(*) {before}), l.token, {now} - l.token, NULL, {session_ended}, {told}
FROM {table} AS l WHERE l.name = {name};

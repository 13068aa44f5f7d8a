-- Asks for a notification of the release of a lock that another ticket holds, and shortens the lease of a
-- holder whose session has ended.
-- name, holder, waiting; unless: the ticket holds.
UPDATE {table} AS l
SET waiting_until = CASE WHEN {waiting} > 0 THEN {now} + {waiting} ELSE l.waiting_until END,
    expires_at = CASE WHEN s.ended THEN least(l.expires_at, {now} + {grace}) ELSE l.expires_at END
FROM (
    SELECT f.name, {ended} AS ended
    FROM {table} AS f
    WHERE f.name = {name} AND f.holder <> {holder} AND f.expires_at > {now} {unless}
      AND ({waiting} > 0 AND f.waiting_until < {now} + {waiting_left} OR {ended})
    FOR NO KEY UPDATE OF f SKIP LOCKED
) AS s
WHERE l.name = s.name

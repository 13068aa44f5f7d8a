-- Announces a ticket that waits, and shortens the lease of a holder whose session has ended.
-- name, holder; window: how long a place lasts, or 0; unless: the ticket holds.
UPDATE {table} AS l
SET waiting_until = CASE WHEN {window} > 0 THEN greatest(l.waiting_until, {now} + {window}) ELSE l.waiting_until END,
    expires_at = CASE WHEN s.ended THEN least(l.expires_at, {now} + {grace}) ELSE l.expires_at END
FROM (
    SELECT f.name, {ended} AS ended
    FROM {table} AS f
    WHERE f.name = {name} {unless}
      AND ({window} > 0 AND NOT EXISTS (
               SELECT 1 FROM {holds} AS p
               WHERE p.name = {name} AND p.holder = {holder} AND p.token < 0 AND p.expires_at > {now} + {window} / 2)
           OR f.holder <> {holder} AND f.expires_at > {now} AND {ended})
    FOR NO KEY UPDATE OF f SKIP LOCKED
) AS s
WHERE l.name = s.name

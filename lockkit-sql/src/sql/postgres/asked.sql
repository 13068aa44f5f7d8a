-- Announces a ticket that waits, and shortens the lease of a holder whose session has ended.
-- name, holder; window: how long a place lasts, or 0; unless: the ticket holds.
UPDATE {table} AS l
SET waiting_until = CASE WHEN {window} > 0 THEN greatest(l.waiting_until, {now} + {window}) ELSE l.waiting_until END,
    expires_at = CASE WHEN s.ended THEN least(l.expires_at, {now} + {grace}) ELSE l.expires_at END
FROM (
    SELECT f.name, {ended} AS ended
    FROM {table} AS f
    WHERE f.name = {name} {unless}
      -- Each waiter renews its place long before this ends.
      AND ({window} > 0 AND f.waiting_until < {now} + {window} / 6 * 5
           OR f.holder <> {holder} AND f.expires_at > {now} AND {ended})
    FOR NO KEY UPDATE OF f SKIP LOCKED
) AS s
WHERE l.name = s.name

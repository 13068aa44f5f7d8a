-- Ends a hold whose lease has not ended. The row stays, for its token.
-- name, holder. Changes a row if it did; to return a row would cost one more wake-up.
UPDATE {table} AS l
SET holder = NULL, expires_at = min(l.expires_at, {now})
WHERE l.name = {name} AND l.holder = {holder} AND l.expires_at >= {now};

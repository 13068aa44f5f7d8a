-- Ends a hold whose lease has not ended. The row stays, for its token.
-- 1 name, 2 holder. Changes a row if it did; to return a row would cost one more wake-up.
UPDATE {table} AS l
SET holder = NULL, expires_at = min(l.expires_at, {now})
WHERE l.name = ?1 AND l.holder = ?2 AND l.expires_at >= {now};

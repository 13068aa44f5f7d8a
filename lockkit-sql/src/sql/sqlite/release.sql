-- Ends a hold whose lease stands; the row stays, for its token.
-- 1 name, 2 ticket. Changes a row if it did: a row for an answer would wake whoever waits once more.
UPDATE {table} AS l
SET holder = NULL, expires_at = min(l.expires_at, {now})
WHERE l.name = ?1 AND l.holder = ?2 AND l.expires_at >= {now};

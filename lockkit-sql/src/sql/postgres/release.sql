-- Ends a hold; the row stays, for its token.
-- {name}, {holder}; {channel} is told {payload} when somebody waits, or always of a pin, whose row
-- nobody can put a note on. Answers whether the lease stood.
UPDATE {table} AS l
SET holder = NULL, expires_at = least(l.expires_at, {now}), pinned = false
WHERE l.name = {name} AND l.holder = {holder}
RETURNING l.expires_at >= (extract(epoch FROM statement_timestamp()) * 1000000)::bigint,
          CASE WHEN {tell} OR l.waiting_until > {now} THEN pg_notify({channel}, {payload}) END;

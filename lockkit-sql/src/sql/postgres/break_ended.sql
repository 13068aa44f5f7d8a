-- Waits until the session of a pin has ended that was told to, and tells those who wait.
-- {name}, {holder}; {channel} is told the name. The row goes on naming the hold, which is none without
-- its session: so a release whose answer was lost finds that it was not carried out.
UPDATE {table} AS l
SET expires_at = least(l.expires_at, {now})
WHERE l.name = {name} AND l.holder = {holder}
RETURNING 1, pg_notify({channel}, encode({name}, 'hex'));

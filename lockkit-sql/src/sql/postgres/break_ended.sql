-- Waits until the session of a pin has ended that was told to, and tells those who wait.
-- {name}, {holder}; {channel} is told the name. The row goes on naming the hold, whose lease has ended:
-- so a release whose answer was lost finds that it was not carried out. It is no pin any more: whoever
-- finds the row locked, by that release perhaps, is not to take it for one that lives. Its token is
-- another: no guarded transaction of it commits from then on.
UPDATE {table} AS l
SET expires_at = least(l.expires_at, {now}), pinned = false, token = l.token + 1
WHERE l.name = {name} AND l.holder = {holder}
RETURNING 1, pg_notify({channel}, encode({name}, 'hex'));

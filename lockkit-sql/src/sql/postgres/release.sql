-- Ends a hold. The row stays, for its token.
-- name, holder. Notifies the channel of the name if a client waits. Returns a row if the ticket held the lock:
-- whether its lease had not ended.
-- The commit does not wait for the disk: the next grant does, for both. A crash of the server can only undo a
-- release that no grant has followed, and the lease ends by itself.
UPDATE {table} AS l
SET holder = NULL, expires_at = least(l.expires_at, {now}), session = 0
-- Skips a row that another transaction has locked.
WHERE l.ctid = (
    SELECT m.ctid FROM {table} AS m
    WHERE m.name = {name} AND m.holder = {holder}
    FOR NO KEY UPDATE SKIP LOCKED
)
RETURNING l.expires_at >= (extract(epoch FROM statement_timestamp()) * 1000000)::bigint,
          CASE WHEN l.waiting_until > {now} THEN pg_notify({channel}, encode({name}, 'hex')) END,
          set_config('synchronous_commit', 'off', true);

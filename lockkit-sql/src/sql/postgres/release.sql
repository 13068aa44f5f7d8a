-- Ends a hold; the row stays, for its token.
-- {name}, {holder}; {channel} is told the name when somebody waits. Returns whether the lease stood, or
-- nothing.
-- Its commit does not wait for the disk: the next grant does, for both. What a crash of the server may
-- undo is a release after which nobody came, and its lease ends by itself.
UPDATE {table} AS l
SET holder = NULL, expires_at = least(l.expires_at, {now}), session = 0
-- A row that a stranger has locked is skipped: never waited for.
WHERE l.ctid = (
    SELECT m.ctid FROM {table} AS m
    WHERE m.name = {name} AND m.holder = {holder}
    FOR NO KEY UPDATE SKIP LOCKED
)
RETURNING l.expires_at >= (extract(epoch FROM statement_timestamp()) * 1000000)::bigint,
          CASE WHEN l.waiting_until > {now} THEN pg_notify({channel}, encode({name}, 'hex')) END,
          set_config('synchronous_commit', 'off', true);

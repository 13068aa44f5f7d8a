-- Ends a hold; the row stays, for its token.
-- {name}, {holder}; {channel} is told the name when somebody waits, or always of a pin ({tell}), whose
-- row nobody can put a note on. Answers whether the lease stood, or nothing.
-- Its commit does not wait for the disk: whoever takes the lock next does, for both. What a crash of the
-- server may undo is a release after which nobody came, and its lease ends by itself.
UPDATE {table} AS l
SET holder = NULL, expires_at = least(l.expires_at, {now}), pinned = false
-- Skipped where a stranger has it locked: never waited for.
WHERE l.ctid = (
    SELECT m.ctid FROM {table} AS m
    WHERE m.name = {name} AND m.holder = {holder}
    FOR NO KEY UPDATE SKIP LOCKED
)
RETURNING l.expires_at >= (extract(epoch FROM statement_timestamp()) * 1000000)::bigint,
          CASE WHEN {tell} OR l.waiting_until > {now}
               THEN pg_notify({channel}, encode({name}, 'hex')) END,
          set_config('synchronous_commit', 'off', true);

-- Takes a lock that is free, was used before, and for which nobody waits.
-- {name}, {holder}; {lease} and {pinned} as they are written. Answers the token if the lock was taken,
-- else nothing: then acquire_new.sql asks for the rest. A ticket that holds already keeps its token, and
-- its lease if that is longer.
UPDATE {table} AS l
SET token = CASE WHEN l.holder = {holder} AND l.expires_at > {now} THEN l.token
                 ELSE greatest(l.token + 1, {now}) END,
    holder = {holder},
    expires_at = greatest(CASE WHEN l.holder = {holder} THEN l.expires_at END, {now} + {lease}),
    pinned = {pinned}
-- Skipped where a pin, a guarded transaction or another step has it locked: never waited for.
WHERE l.ctid = (
    SELECT f.ctid FROM {table} AS f
    WHERE f.name = {name}
      AND (f.holder IS NULL OR f.holder = {holder} OR f.expires_at <= {now})
    FOR UPDATE SKIP LOCKED
)
RETURNING l.token;

-- Ends the hold of any holder. Returns what it was.
-- name. Notifies the channel of the name if a client waits, and of the holder if it has a session.
WITH seen AS (
    SELECT l.* FROM {table} AS l
    WHERE l.name = {name} AND l.holder IS NOT NULL AND l.expires_at > {now}
    FOR UPDATE
), freed AS (
    UPDATE {table} AS l
    SET holder = NULL, expires_at = {now}, session = 0
    FROM seen AS s
    WHERE l.name = s.name
    RETURNING l.waiting_until
)
SELECT s.name, s.holder, s.token, s.expires_at - {now},
       CASE WHEN f.waiting_until > {now} THEN pg_notify({channel}, encode({name}, 'hex')) END,
       CASE WHEN s.session <> 0 THEN pg_notify({channel}, 'broken ' || s.holder) END
FROM seen AS s, freed AS f;

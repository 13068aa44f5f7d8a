-- Ends the hold of any holder. Returns a row if it did.
-- name, holder: the one that was seen. Notifies the channel of the name if a client waits, and of the holder if it has a session.
WITH seen AS (
    SELECT l.* FROM {table} AS l
    WHERE l.name = {name} AND l.holder = convert_from({holder}, 'UTF8')
    FOR UPDATE
), freed AS (
    UPDATE {table} AS l
    SET holder = NULL, expires_at = {now}, session = 0
    FROM seen AS s
    WHERE l.name = s.name
    RETURNING l.waiting_until
)
SELECT CASE WHEN f.waiting_until > {now} THEN pg_notify({channel}, encode({name}, 'hex')) END,
       CASE WHEN s.session <> 0 THEN pg_notify({channel}, 'broken ' || s.holder) END
FROM seen AS s, freed AS f;

-- Ends a hold that is not pinned, whoever has it.
-- {name}; {channel} is told the name when somebody waits. Answers what was there.
WITH seen AS (
    SELECT l.* FROM {table} AS l
    WHERE l.name = {name} AND NOT l.pinned AND l.holder IS NOT NULL AND l.expires_at > {now}
    FOR UPDATE
), freed AS (
    UPDATE {table} AS l
    SET holder = NULL, expires_at = {now}, pinned = false
    FROM seen AS s
    WHERE l.name = s.name
    RETURNING l.waiting_until
)
SELECT s.name, s.holder, s.token, s.expires_at - {now}, s.pinned,
       CASE WHEN f.waiting_until > {now} THEN pg_notify({channel}, encode({name}, 'hex')) END
FROM seen AS s, freed AS f;

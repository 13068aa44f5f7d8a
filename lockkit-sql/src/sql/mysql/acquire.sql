-- Takes a lock that is free, in one message.
-- name, holder, ttl, pinned. Answers thrice: the rows changed, with the token as the insert id. The
-- lock is given if the first or the third of them changed a row.
--
-- 1. The row that is there, if it is free and nobody has it locked. The inner query passes over a
--    locked row. It must come first, and be carried out by itself: without the limit MySQL would merge
--    it into the outer statement, and without the order of the join MariaDB might look through the
--    whole table, and both would wait for rows of others.
--    A ticket that holds already keeps its token; every other grant has a larger one. The token comes
--    first: what is set later sees what was set before.
UPDATE (
    SELECT name FROM {table} FORCE INDEX (PRIMARY)
    WHERE name = {name}
      AND (holder IS NULL OR holder = {holder} OR expires_at <= {now} OR pinned <> 0)
    LIMIT 1 FOR UPDATE SKIP LOCKED
) AS free STRAIGHT_JOIN {table} AS l FORCE INDEX (PRIMARY) ON l.name = free.name
SET l.token = LAST_INSERT_ID(
        IF(l.holder = {holder} AND l.expires_at > {now}, l.token, GREATEST(l.token + 1, {now}))),
    l.holder = {holder},
    l.expires_at = {now} + {ttl},
    l.pinned = {pinned};
-- 2. For the next statement alone: otherwise its look at the row would lock it, and wait.
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
-- 3. A name never seen. An insert without the look before it would wait for whoever has the row
--    locked.
INSERT IGNORE INTO {table} (name, holder, token, expires_at, pinned)
SELECT {name}, {holder}, LAST_INSERT_ID({now}), {now} + {ttl}, {pinned} FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM {table} AS l WHERE l.name = {name});

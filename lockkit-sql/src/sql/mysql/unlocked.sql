-- Which of the pinned locks nobody keeps: their holders are gone.
-- what: a condition on the name.
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT l.name FROM {table} AS l
WHERE l.pinned <> 0 AND l.holder IS NOT NULL AND {what}
FOR UPDATE SKIP LOCKED;

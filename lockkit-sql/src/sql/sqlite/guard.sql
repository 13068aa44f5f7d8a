-- Within the caller's transaction: the write to the file keeps everybody else out until it ends.
-- 1 name, 2 ticket, 3 token. Answers a row if the hold stands.
UPDATE {table} AS l SET holder = l.holder
WHERE l.name = ?1 AND l.holder = ?2 AND l.token = ?3
RETURNING 1;

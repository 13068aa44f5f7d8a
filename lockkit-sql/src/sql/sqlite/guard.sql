-- In the application's transaction: its write lock on the file blocks takeovers until the commit.
-- 1 name, 2 holder, 3 token. Returns a row if the lock is still held.
UPDATE {table} AS l SET holder = l.holder
WHERE l.name = ?1 AND l.holder = ?2 AND l.token = ?3
RETURNING 1;

-- Within the caller's transaction: takes the lock for as long as the transaction lasts.
-- {name}. Answers a row if nobody holds.
SELECT 1 FROM {table} AS l
WHERE l.name = {name} AND (l.holder IS NULL OR l.expires_at <= {now})
FOR UPDATE SKIP LOCKED;

-- In the application's transaction: takes the lock for as long as the transaction lasts.
-- name. Changes a row if the lock is free.
INSERT INTO {table} AS l (name, holder, token, expires_at)
VALUES ({name}, NULL, {now}, {now})
ON CONFLICT (name) DO UPDATE SET holder = NULL
WHERE l.holder IS NULL OR l.expires_at <= {now};

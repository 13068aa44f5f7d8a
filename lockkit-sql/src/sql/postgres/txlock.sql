-- In the application's transaction: takes the lock for as long as the transaction lasts. It removes a
-- holder whose lease has ended, so that no guarded transaction of that holder commits later.
-- name. Returns whether it was taken, and whether there is a row.
--
-- FOR UPDATE is needed: the update alone changes no key, so that it would not wait for a guarded transaction.
WITH taken AS (
    UPDATE {table} AS l SET holder = NULL, session = 0
    WHERE l.name = (
        SELECT f.name FROM {table} AS f
        WHERE f.name = {name} AND (f.holder IS NULL OR f.expires_at <= {now})
        FOR UPDATE SKIP LOCKED
    )
    RETURNING 1
)
SELECT EXISTS (SELECT 1 FROM taken), EXISTS (SELECT 1 FROM {table} AS n WHERE n.name = {name});

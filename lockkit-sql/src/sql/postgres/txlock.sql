-- Within the caller's transaction: takes the lock for as long as the transaction lasts. A holder whose
-- lease has ended is taken off, so that none of its guarded transactions commits later.
-- {name}. Answers whether it was taken, and whether there is a row at all.
--
-- The lock must be this one: the update alone changes no key, and a guarded transaction would pass it.
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

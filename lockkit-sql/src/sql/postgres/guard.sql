-- In the application's transaction: a takeover changes a column of the key, and waits
-- or passes by until the transaction has ended. Renewals do not wait.
-- {name}, {holder}, {token}. Answers a row if the hold stands.
SELECT 1 FROM {table} AS l
WHERE l.name = {name} AND l.holder = {holder} AND l.token = {token}
FOR KEY SHARE;

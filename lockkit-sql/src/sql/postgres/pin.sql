-- Begins the transaction that is the lease of a pinned hold. It changes nothing: what it changed would
-- be taken back with its connection, and a token would be given twice.
-- {name}, {holder}; {idle}: milliseconds of silence after which the server ends it. Answers a row if
-- the row is locked; other statements pass it by, guarded transactions of this hold do not wait.
BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL idle_in_transaction_session_timeout = {idle};
SELECT 'pinned' FROM {table} AS l
WHERE l.name = {name} AND l.holder = {holder}
FOR NO KEY UPDATE;

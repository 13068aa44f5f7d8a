-- Begins the transaction that is the lease of a pinned hold. It changes nothing: what it changed would
-- be taken back with its connection, and a token would be given twice.
-- {name}, {holder}; {idle}: milliseconds of silence after which the server ends it. Answers a row if
-- the row is locked, with the number of the transaction; other statements pass it by, guarded transactions of this hold do not wait.
-- The advisory lock keeps nobody out: break_pin.sql finds the session by it. Names of other tables
-- of this database are others. ended.sql asks for the transaction by its number.
BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL idle_in_transaction_session_timeout = {idle};
SELECT 'pinned' || pg_advisory_xact_lock(
    hashtextextended(l.tableoid::text || encode({name}, 'hex'), 7305))::text || txid_current()
FROM {table} AS l
WHERE l.name = {name} AND l.holder = {holder}
FOR NO KEY UPDATE;

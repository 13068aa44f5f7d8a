-- Begins a session that proves that its client is alive. The user lock ends with the connection.
-- random: 32 bits. Returns the key of the session, whether it has the lock, and the connection's number.
SET SESSION wait_timeout = 28800;
SET @lockkit_session = {server} << 32 | {random};
SELECT @lockkit_session, GET_LOCK(CONCAT('lockkit_', @lockkit_session), 0), CONNECTION_ID();

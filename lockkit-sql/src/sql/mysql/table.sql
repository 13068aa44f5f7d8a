-- The locks. Times are microseconds since 1970, by the server's clock.
CREATE TABLE IF NOT EXISTS {table} (
    -- The name, byte for byte.
    name VARBINARY(512) NOT NULL PRIMARY KEY,
    -- {client}:{n} of the hold; null when the lock is free.
    holder VARBINARY(100),
    -- The fencing token of the hold, or of the last one. It outlives the hold.
    token BIGINT NOT NULL,
    -- The end of the lease; when the lock is free, of the last hold.
    expires_at BIGINT NOT NULL,
    -- A waiter wants a notification until then. Unused here: waiters poll.
    waiting_until BIGINT NOT NULL DEFAULT 0,
    -- The session that proves that the client of a pinned hold is alive; 0 for a plain lease.
    session BIGINT NOT NULL DEFAULT 0,
    UNIQUE KEY {bare}_token (name, token)
) ENGINE = InnoDB;

-- The locks. Times are microseconds since 1970, by the server's clock.
CREATE TABLE IF NOT EXISTS {table} (
    -- The name, byte for byte.
    name VARBINARY(512) NOT NULL PRIMARY KEY,
    -- {client}:{n} of the hold; null when nobody holds.
    holder VARBINARY(100),
    -- The fencing token of the hold, or of the last one. It outlives the hold.
    token BIGINT NOT NULL,
    -- The end of the lease; when nobody holds, of the last hold.
    expires_at BIGINT NOT NULL,
    -- Somebody waits until then. Unused here: waiters poll.
    waiting_until BIGINT NOT NULL DEFAULT 0,
    -- The connection that keeps the row locked for as long as the hold lasts; 0 for a mere lease.
    pinned BIGINT NOT NULL DEFAULT 0,
    UNIQUE KEY {bare}_token (name, token)
) ENGINE = InnoDB;

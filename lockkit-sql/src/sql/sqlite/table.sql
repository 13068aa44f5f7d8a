-- The locks. Times are microseconds since 1970, by the clock of this machine.
CREATE TABLE IF NOT EXISTS {table} (
    -- The name, byte for byte.
    name BLOB NOT NULL PRIMARY KEY,
    -- {client}:{n} of the hold; null when the lock is free.
    holder TEXT,
    -- The fencing token of the hold, or of the last one. It outlives the hold.
    token INTEGER NOT NULL,
    -- The end of the lease; when the lock is free, of the last hold.
    expires_at INTEGER NOT NULL,
    -- A waiter wants a notification until then. Unused here: waiters poll.
    waiting_until INTEGER NOT NULL DEFAULT 0,
    -- Unused here: only a server has sessions.
    session INTEGER NOT NULL DEFAULT 0
);

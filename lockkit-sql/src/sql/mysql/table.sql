-- The rights of an application, with its user in place of app:
-- GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO app;
-- GRANT SELECT, INSERT, UPDATE, DELETE ON {holds} TO app;
--
-- The table of the locks comes last: a client that finds it finds both.
--
-- Holds beside others, and what else holds need. A row with a token above zero holds until its end, while the
-- row of its name says `~` as the holder. One below zero is the place of a ticket that waits: the
-- negative time at which it began to. One of zero has the note of an exclusive hold.
CREATE TABLE IF NOT EXISTS {holds} (
    name VARBINARY(512) NOT NULL,
    -- {client}:{n} of the hold.
    holder VARBINARY(100) NOT NULL,
    token BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    -- How many may hold together: 4294967295 for a reader.
    room BIGINT,
    -- Which program holds.
    label VARBINARY(512),
    -- Unused here: a ticket takes its turn itself.
    session BIGINT NOT NULL DEFAULT 0,
    -- What the holder says of itself.
    note VARBINARY(512),
    PRIMARY KEY (name, holder)
) ENGINE = InnoDB;

-- The locks. Times are microseconds since 1970, by the server's clock.
CREATE TABLE IF NOT EXISTS {table} (
    -- The name, byte for byte.
    name VARBINARY(512) NOT NULL PRIMARY KEY,
    -- {client}:{n} of the hold; `~` for those in the second table; null when the lock is free.
    holder VARBINARY(100),
    -- The fencing token of the hold, or of the last one. It outlives the hold.
    token BIGINT NOT NULL,
    -- The end of the lease; when the lock is free, of the last hold.
    expires_at BIGINT NOT NULL,
    -- Tickets may wait until then, with places in the second table.
    waiting_until BIGINT NOT NULL DEFAULT 0,
    -- The session that proves that the client of a pinned hold is alive; 0 for a plain lease.
    session BIGINT NOT NULL DEFAULT 0,
    -- Which program holds, for operators.
    label VARBINARY(512),
    UNIQUE KEY {bare}_token (name, token)
) ENGINE = InnoDB;

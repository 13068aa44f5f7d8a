{rights}
-- The table of the locks comes last: a client that finds it finds both.
--
-- Holds beside others, and what else holds need. A row with a token above zero holds until its end, while the
-- row of its name says `~` as the holder. One below zero is the place of a ticket that waits: the
-- negative time at which it began to. One of zero has the note of an exclusive hold.
CREATE TABLE IF NOT EXISTS {holds} (
    name {bytes} NOT NULL,
    -- {client}:{n} of the hold.
    holder {holder} NOT NULL,
    token {number} NOT NULL,
    expires_at {number} NOT NULL,
    -- How many may hold together: 4294967295 for a reader.
    room {number},
    -- Which program holds.
    label {bytes},
    -- The session of a ticket that waits for a pinned hold, on PostgreSQL.
    session {number} NOT NULL DEFAULT 0,
    -- What the holder says of itself.
    note {bytes},
    PRIMARY KEY (name, holder)
){options};

-- The locks. Times are microseconds since 1970, by the clock of the database.
CREATE TABLE IF NOT EXISTS {table} (
    -- The name, byte for byte; on PostgreSQL convert_from(name, 'UTF8') shows it.
    name {bytes} NOT NULL PRIMARY KEY,
    -- {client}:{n} of the hold; `~` for those in the second table; null when the lock is free.
    holder {holder},
    -- The fencing token of the hold, or of the last one. It outlives the hold.
    token {number} NOT NULL,
    -- The end of the lease; when the lock is free, of the last hold.
    expires_at {number} NOT NULL,
    -- Tickets may wait until then, with places in the second table.
    waiting_until {number} NOT NULL DEFAULT 0,
    -- The session that proves that the client of a pinned hold is alive; 0 for a plain lease.
    session {number} NOT NULL DEFAULT 0,
    -- Which program holds, for operators.
    label {bytes}{key}
){options};

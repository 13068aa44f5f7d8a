-- The table of the locks comes last: a client that finds it finds both.
--
-- Holds beside others, and what else holds need. A row with a token above zero holds until its end, while the
-- row of its name says `~` as the holder. One below zero is the place of a ticket that waits: the
-- negative time at which it began to. One of zero has the note of an exclusive hold.
CREATE TABLE IF NOT EXISTS {holds} (
    name BLOB NOT NULL,
    -- {client}:{n} of the hold.
    holder TEXT NOT NULL,
    token INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    -- How many may hold together: 4294967295 for a reader.
    room INTEGER,
    -- Which program holds.
    label BLOB,
    -- Unused here: a ticket takes its turn itself.
    session INTEGER NOT NULL DEFAULT 0,
    -- What the holder says of itself.
    note BLOB,
    PRIMARY KEY (name, holder)
);

-- The locks. Times are microseconds since 1970, by the clock of this machine.
CREATE TABLE IF NOT EXISTS {table} (
    -- The name, byte for byte.
    name BLOB NOT NULL PRIMARY KEY,
    -- {client}:{n} of the hold; `~` for those in the second table; null when the lock is free.
    holder TEXT,
    -- The fencing token of the hold, or of the last one. It outlives the hold.
    token INTEGER NOT NULL,
    -- The end of the lease; when the lock is free, of the last hold.
    expires_at INTEGER NOT NULL,
    -- Tickets may wait until then, with places in the second table.
    waiting_until INTEGER NOT NULL DEFAULT 0,
    -- Unused here: only a server has sessions.
    session INTEGER NOT NULL DEFAULT 0,
    -- Which program holds, for operators.
    label BLOB
);

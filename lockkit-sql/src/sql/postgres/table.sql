-- The table of the locks comes last: a client that finds it finds both.
--
-- Holds beside others, and what else holds need. A row with a token above zero holds until its end, while the
-- row of its name says `~` as the holder. One below zero is the place of a ticket that waits: the
-- negative time at which it began to. One of zero has the note of an exclusive hold.
CREATE TABLE IF NOT EXISTS {holds} (
    name bytea NOT NULL,
    -- {client}:{n} of the hold.
    holder text NOT NULL,
    token bigint NOT NULL,
    expires_at bigint NOT NULL,
    -- How many may hold together: 4294967295 for a reader.
    room bigint,
    -- Which program holds.
    label bytea,
    -- The session of a ticket that waits for a pinned hold.
    session bigint NOT NULL DEFAULT 0,
    -- What the holder says of itself.
    note bytea,
    PRIMARY KEY (name, holder)
) WITH (fillfactor = 50);

-- The locks. Times are microseconds since 1970, by the clock of the server.
CREATE TABLE IF NOT EXISTS {table} (
    -- The name, byte for byte: convert_from(name, 'UTF8') shows it.
    name bytea NOT NULL PRIMARY KEY,
    -- {client}:{n} of the hold; `~` for those in the second table; null when the lock is free.
    holder text,
    -- The fencing token of the hold, or of the last one. It outlives the hold.
    token bigint NOT NULL,
    -- The end of the lease; when the lock is free, of the last hold.
    expires_at bigint NOT NULL,
    -- Tickets may wait until then, with places in the second table.
    waiting_until bigint NOT NULL DEFAULT 0,
    -- The session that proves that the client of a pinned hold is alive; 0 for a plain lease.
    session bigint NOT NULL DEFAULT 0,
    -- Which program holds, for operators.
    label bytea,
    -- A new hold changes a column of this key, so that it waits for transactions that have locked the key.
    UNIQUE (name, token)
) WITH (fillfactor = 50);
-- The rights of an application, with its user in place of app:
-- GRANT SELECT, INSERT, UPDATE, DELETE ON {table}, {holds} TO app;

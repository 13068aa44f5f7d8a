-- The locks. Times are microseconds since 1970, by the clock of the server.
CREATE TABLE IF NOT EXISTS {table} (
    -- The name, byte for byte: convert_from(name, 'UTF8') shows it.
    name bytea NOT NULL PRIMARY KEY,
    -- {client}:{n} of the hold; null when nobody holds.
    holder text,
    -- The fencing token of the hold, or of the last one. It outlives the hold.
    token bigint NOT NULL,
    -- The end of the lease; when nobody holds, of the last hold.
    expires_at bigint NOT NULL,
    -- Somebody waits until then, and is to be told of a release.
    waiting_until bigint NOT NULL DEFAULT 0,
    -- The key of the session that the hold ends with; 0 if it has none.
    session bigint NOT NULL DEFAULT 0,
    -- A new hold changes a column of a key, so that it waits for transactions that hold the key.
    UNIQUE (name, token)
) WITH (fillfactor = 50);
-- What an application needs, with its user in place of app:
-- GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO app;

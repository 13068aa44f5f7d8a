-- Begins the session of a client: a lock of the server that ends with the connection.
-- {random}: 32 bits. Returns the session's key, and whether it is new.
-- The server finds out that the client is gone, and no sooner than a client that hears nothing gives its
-- session up; it ends no session for being silent.
SELECT set_config(s.name, v.value, false)
FROM (VALUES ('idle_session_timeout', '0'), ('tcp_user_timeout', '0'), ('tcp_keepalives_idle', '60'),
             ('tcp_keepalives_interval', '15'), ('tcp_keepalives_count', '4')) AS v (name, value)
JOIN pg_settings AS s ON s.name = v.name;
SELECT k.key, pg_try_advisory_lock(k.key) FROM (SELECT ({server} << 32) + {random} AS key) AS k;

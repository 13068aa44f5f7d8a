-- Begins a session that proves that its client is alive. The advisory lock ends with the connection.
-- random: 32 bits. Returns the key of the session, and whether it has the lock.
-- The server detects that the client is gone, but no sooner than a client that gets no reply gives its
-- session up. It ends no session for being silent.
SELECT set_config(s.name, v.value, false)
FROM (VALUES ('idle_session_timeout', '0'), ('tcp_user_timeout', '0'), ('tcp_keepalives_idle', '60'),
             ('tcp_keepalives_interval', '15'), ('tcp_keepalives_count', '4')) AS v (name, value)
JOIN pg_settings AS s ON s.name = v.name;
SELECT k.key, pg_try_advisory_lock(k.key) FROM (SELECT ({server} << 32) + {random} AS key) AS k;

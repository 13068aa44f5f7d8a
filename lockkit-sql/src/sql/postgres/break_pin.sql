-- Ends the session of a pin: it is the one whose transaction has the row locked.
-- {name}. Answers what was there, and whether the session was told to end.
SELECT l.name, l.holder, l.token, l.expires_at - {now}, l.pinned, pg_terminate_backend(a.pid)
FROM {table} AS l JOIN pg_stat_activity AS a ON a.backend_xid = l.xmax
WHERE l.name = {name} AND l.pinned AND l.holder IS NOT NULL;

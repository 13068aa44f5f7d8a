-- From another connection: whether no session of the server has this key.
-- session.
SELECT pg_try_advisory_xact_lock_shared({session});

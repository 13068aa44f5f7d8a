-- Ends the session of a pin: it is the one that has the pin's advisory lock, which says nothing but who
-- has the row. (The row itself does not tell: guarded transactions share its xmax with the pin.)
-- {name}. Answers what was there, and whether the session was told to end.
SELECT l.name, l.holder, l.token, l.expires_at - {now}, l.pinned, pg_terminate_backend(k.pid)
FROM {table} AS l JOIN pg_locks AS k
  ON k.locktype = 'advisory' AND k.objsubid = 1 AND k.granted
 AND k.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
 AND ((k.classid::bigint << 32) | k.objid::bigint)
      = hashtextextended(l.tableoid::text || encode({name}, 'hex'), 7305)
WHERE l.name = {name} AND l.pinned AND l.holder IS NOT NULL;

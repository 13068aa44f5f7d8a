-- After the acquire, in the same message: keeps the row locked against everybody who wants to change
-- it, in a transaction of its own. The token was raised before, or a crash would take it back.
-- A shared lock, so that a guarded transaction of the holder passes; the crash of the server's
-- session ends it. Each make of the server has its own words for it.
-- The user lock keeps nobody out: who breaks the hold finds the session by it. A number in the row could
-- be that of a stranger by then, after a restart or on another server.
-- name, holder. Answers a row if the lock is given.
START TRANSACTION;
SELECT l.token, GET_LOCK({holder}, 0) FROM {table} AS l
WHERE l.name = {name} AND l.holder = {holder} AND l.pinned = CONNECTION_ID()
/*!80001 FOR SHARE SKIP LOCKED */ /*M!100600 LOCK IN SHARE MODE SKIP LOCKED */;

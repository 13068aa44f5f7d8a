-- What the row says of a lock that was not given, or was not given back. Waits for nobody.
-- name, holder. Answers whether the ticket has it, whether anybody has, the time left, and whether
-- it is pinned.
SELECT l.holder <=> {holder}, l.holder IS NOT NULL, l.expires_at - {now}, l.pinned <> 0
FROM {table} AS l WHERE l.name = {name};

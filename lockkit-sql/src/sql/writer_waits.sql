-- Keeps later readers and permits out while an exclusive ticket waits for those that hold. Repeated, it keeps
-- them out for longer.
-- name, holder, window. The token is below zero: when it began to wait.
INSERT INTO {holds} (name, holder, token, expires_at)
VALUES ({name}, {holder}, -{now}, {now} + {window})
{upsert} expires_at = {now} + {window};

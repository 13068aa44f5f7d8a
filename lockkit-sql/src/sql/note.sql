-- Sets the note of a hold: in its row beside others, or in a row that only has the note of an exclusive hold.
-- name, holder, note. Returns whether the ticket holds.
{start}
DELETE FROM {holds}
WHERE name = {name} AND token = 0 AND EXISTS (
    SELECT 1 FROM {table} AS l WHERE l.name = {name} AND l.holder = {holder} AND l.expires_at > {now});
UPDATE {holds} SET note = {note} WHERE name = {name} AND holder = {holder};
INSERT INTO {holds} (name, holder, token, expires_at, note)
SELECT {name}, {holder}, 0, {now}, {note}
FROM {table} AS l
WHERE l.name = {name} AND l.holder = {holder} AND l.expires_at > {now}
  AND NOT EXISTS (SELECT 1 FROM {holds} AS h WHERE h.name = {name} AND h.holder = {holder});
SELECT EXISTS (
    SELECT 1 FROM {table} AS l LEFT JOIN {holds} AS h ON h.name = l.name AND h.holder = {holder}
    WHERE l.name = {name} AND l.expires_at > {now}
      AND (l.holder = {holder} OR l.holder = '~' AND h.token > 0 AND h.expires_at > {now}));
{commit}

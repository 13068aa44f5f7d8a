-- Restarts leases of holds beside others that have not ended, and makes none shorter.
-- names, holders, ttl. Returns the holders that it renewed.
BEGIN IMMEDIATE;
UPDATE {holds} SET expires_at = max(expires_at, {now} + {ttl})
WHERE name IN ({names}) AND holder IN ({holders}) AND token > 0 AND expires_at > {now}
  AND name IN (SELECT l.name FROM {table} AS l WHERE l.name IN ({names}) AND l.holder = '~')
RETURNING holder, 1;
UPDATE {table} AS l
SET expires_at = (SELECT max(h.expires_at) FROM {holds} AS h WHERE h.name = l.name AND h.token > 0)
WHERE l.name IN ({names}) AND l.holder = '~'
  AND EXISTS (SELECT 1 FROM {holds} AS h WHERE h.name = l.name AND h.token > 0);
COMMIT;

-- Takes a ticket from those that wait, after lock.sql. Its late attempts are refused, and those of tickets that were
-- withdrawn long ago are no longer.
-- name, holder; refuse: for how long, or 0. Returns whether the row of the name was locked: else nothing was done.
DELETE FROM {holds} WHERE name = {mine} AND (
    holder = {holder} AND token <= 0 OR token = {withdrawn} AND expires_at <= {now});
INSERT INTO {holds} (name, holder, token, expires_at)
SELECT l.name, {holder}, {withdrawn}, {now} + {refuse}
FROM {table} AS l
WHERE l.name = {mine} AND {refuse} > 0
  AND NOT EXISTS (SELECT 1 FROM {holds} AS h WHERE h.name = {name} AND h.holder = {holder});
SELECT {mine} IS NOT NULL, {notify};
UPDATE {table} SET waiting_until = {greatest}(waiting_until, {last_place}) WHERE name = {mine};

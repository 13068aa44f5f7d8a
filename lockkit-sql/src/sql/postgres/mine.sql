-- After a release that ended nothing.
-- {name}, {holder}. Answers a row if the ticket still holds: then somebody has the row locked.
SELECT 1 FROM {table} AS l WHERE l.name = {name} AND l.holder = {holder};

-- Which of the leases were renewed, when not all were: on the connection of the renewal.
-- names, holders, ttl. Answers the holders whose leases stand, and whether they were renewed.
SELECT l.holder, l.expires_at >= @lockkit_now + {ttl}
FROM {table} AS l
WHERE l.name IN ({names}) AND l.holder IN ({holders}) AND l.expires_at > {now};

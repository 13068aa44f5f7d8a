-- Lists holds: for each the row of its name, and its own if it has one; and names that only have tickets that wait.
-- Waits for no lock.
-- condition: on the name. `Row::read` in steps.rs counts these columns.
SELECT l.name, CASE WHEN l.expires_at > {now} THEN l.holder END, l.token, l.expires_at - {now}, {now},
    l.label, h.holder, h.token, h.expires_at - {now}, h.room, h.label, h.note,
    CASE WHEN l.waiting_until > {now} THEN {waiters} ELSE 0 END
FROM {table} AS l
LEFT JOIN {holds} AS h ON h.name = l.name AND (h.holder = l.holder
    OR l.holder = '~' AND h.token > 0 AND h.expires_at > {now})
WHERE {condition} AND (l.holder IS NOT NULL AND l.expires_at > {now} OR l.waiting_until > {now} AND {waiters} > 0)
ORDER BY l.name, h.holder;

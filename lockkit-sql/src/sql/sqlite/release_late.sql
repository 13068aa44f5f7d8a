-- After a release that ended nothing: takes a hold out of the row whose lease has ended by itself.
-- 1 name, 2 ticket.
UPDATE {table} SET holder = NULL WHERE name = ?1 AND holder = ?2;

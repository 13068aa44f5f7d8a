-- After a release that changed nothing: removes a holder whose lease has ended.
-- 1 name, 2 holder.
UPDATE {table} SET holder = NULL WHERE name = ?1 AND holder = ?2;

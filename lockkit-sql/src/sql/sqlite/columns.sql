-- The columns of the table.
-- 1 its name, 2 its schema.
SELECT name, type FROM pragma_table_info(?1, ?2);

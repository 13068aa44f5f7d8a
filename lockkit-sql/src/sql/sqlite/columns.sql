-- The columns of the table.
-- schema.
SELECT name, type FROM pragma_table_info('{bare}', '{schema}');

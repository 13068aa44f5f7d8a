-- The parts of the table that count: columns with their types, keys with their columns, storage engine.
-- schema. Newer servers show no display width.
SELECT column_name, REPLACE(column_type, 'bigint(20)', 'bigint') FROM information_schema.columns
WHERE table_schema = {schema} AND table_name = '{bare}'
UNION ALL
SELECT IF(index_name = 'PRIMARY', 'PRIMARY KEY', IF(MAX(non_unique) = 0, 'UNIQUE KEY', 'KEY')),
       CONCAT('(', GROUP_CONCAT(column_name ORDER BY seq_in_index), ')') FROM information_schema.statistics
WHERE table_schema = {schema} AND table_name = '{bare}' GROUP BY index_name
UNION ALL
SELECT 'ENGINE', engine FROM information_schema.tables
WHERE table_schema = {schema} AND table_name = '{bare}';

-- The columns of the table, and the columns of each unique key.
SELECT a.attname::text, format_type(a.atttypid, NULL)
FROM pg_attribute AS a
WHERE a.attrelid = to_regclass({relation}) AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT 'UNIQUE', '(' || string_agg(a.attname::text, ', ' ORDER BY k.n) || ')'
FROM pg_index AS i, unnest(i.indkey) WITH ORDINALITY AS k (attnum, n), pg_attribute AS a
WHERE i.indrelid = to_regclass({relation}) AND i.indisunique AND i.indpred IS NULL AND i.indisvalid
  AND a.attrelid = i.indrelid AND a.attnum = k.attnum
GROUP BY i.indexrelid;

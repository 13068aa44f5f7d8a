-- The schemas that have a table of this name, and whether each is the one that was asked for.
-- schema: a text, or null for those of the search_path.
SELECT n.nspname::text, coalesce(n.nspname = {schema}, n.nspname = ANY (current_schemas(false)))
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relname = '{bare}' AND c.relkind IN ('r', 'p') AND ({schema} IS NULL OR n.nspname = {schema})
ORDER BY n.nspname;

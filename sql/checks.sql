-- name: list_columns
-- Lists the columns of every table and view but partitions: what a version may rely on, and what an insert must bring.
select c.relname as table_name, a.attname as column_name, format_type(a.atttypid, a.atttypmod) as type,
       not a.attnotnull as nullable, (a.atthasdef or a.attidentity <> '') as has_default
  from pg_class c
  join pg_attribute a on a.attrelid = c.oid
 where c.relnamespace = 'relevo'::regnamespace and c.relkind in ('r', 'p', 'v') and not c.relispartition
   and a.attnum > 0 and not a.attisdropped
 order by c.relname, a.attname;

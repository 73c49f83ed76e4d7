-- name: list_columns
-- Lists the columns of every table and view but partitions: what a version may rely on, and what an insert must bring.
select c.relname as table_name, a.attname as column_name, format_type(a.atttypid, a.atttypmod) as type,
       not a.attnotnull as nullable, (a.atthasdef or a.attidentity <> '') as has_default
  from pg_class c
  join pg_attribute a on a.attrelid = c.oid
 where c.relnamespace = 'relevo'::regnamespace and c.relkind in ('r', 'p', 'v') and not c.relispartition
   and a.attnum > 0 and not a.attisdropped
 order by c.relname, a.attname;

-- name: list_catalog
-- Lists what the schema is made of, partitions left out: the kind and name of each thing, and all that matters of it in one text.
with relations as (
  select c.*, c.oid::regclass::text as name from pg_class c where c.relnamespace = 'relevo'::regnamespace and not c.relispartition
)
select 'relation' as kind, r.name,
       concat_ws(' ', r.relkind, r.relpersistence, r.reloptions, r.relacl, pg_get_partkeydef(r.oid),
                 case when r.relkind = 'v' then pg_get_viewdef(r.oid) end, obj_description(r.oid, 'pg_class')) as text
  from relations r where r.relkind in ('r', 'p', 'v', 'c', 'S')
union all
select 'column', r.name || '.' || a.attname,
       concat_ws(' ', row_number() over (partition by r.oid order by a.attnum), format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
                 a.attgenerated, pg_get_expr(d.adbin, d.adrelid), a.attstorage, a.attcompression, a.attacl, col_description(r.oid, a.attnum))
  from relations r
  join pg_attribute a on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped
  left join pg_attrdef d on d.adrelid = r.oid and d.adnum = a.attnum
 where r.relkind in ('r', 'p', 'v', 'c')
union all
-- Constraints that were added to a table with rows in it may be not valid there.
select 'constraint', r.name || '.' || k.conname, replace(pg_get_constraintdef(k.oid), ' NOT VALID', '')
  from relations r join pg_constraint k on k.conrelid = r.oid and k.contype <> 'n'
union all
select 'index', i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid) from relations r join pg_index i on i.indrelid = r.oid
union all
select 'trigger', r.name || '.' || t.tgname, concat_ws(' ', t.tgenabled, pg_get_triggerdef(t.oid))
  from relations r join pg_trigger t on t.tgrelid = r.oid and not t.tgisinternal
union all
select 'sequence', s.seqrelid::regclass::text, concat_ws(' ', s.seqtypid::regtype, s.seqstart, s.seqincrement, s.seqmax, s.seqmin, s.seqcache, s.seqcycle)
  from relations r join pg_sequence s on s.seqrelid = r.oid
union all
select 'function', p.oid::regprocedure::text, concat_ws(' ', pg_get_functiondef(p.oid), p.proacl, obj_description(p.oid, 'pg_proc'))
  from pg_proc p where p.pronamespace = 'relevo'::regnamespace
 order by 1, 2;

-- name: list_columns
-- Lists a relation's columns with their types, in order.
select a.attname as name, replace(format_type(a.atttypid, a.atttypmod), ', ', ',') as type
  from pg_attribute a
 where a.attrelid = to_regclass(format('%%I.%%I', %(schema)s::text, %(relation)s::text)) and a.attnum > 0 and not a.attisdropped
 order by a.attnum;

-- name: list_keys
-- Lists the columns of a relation's primary key, in order: what its rows are sorted and cut by.
select a.attname
  from pg_index i
  cross join unnest(i.indkey::int[]) with ordinality as k(attnum, place)
  join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
 where i.indrelid = to_regclass(format('%%I.%%I', %(schema)s::text, %(relation)s::text)) and i.indisprimary
 order by k.place;

-- name: fix_formats
-- Fixes how keys are written in this transaction, whatever its session says.
select set_config('TimeZone', 'UTC', true), set_config('DateStyle', 'ISO, YMD', true);

-- name: compose_part_end
-- Writes the statement that finds where a part ends: how many rows it has, and the key of its last one.
select format('select p.n, array[%%6$s] from (select row_number() over (order by %%1$s) as n, %%1$s from %%2$I.%%3$I where %%4$s order by %%1$s limit %%5$s) p order by p.n desc limit 1',
              k.names, %(schema)s::text, %(relation)s::text,
              case when cardinality(%(after)s::text[]) = 0 then 'true' else format('(%%s) > (%%s)', k.names, k.after) end, %(limit)s::bigint, k.texts)
  from (select string_agg(format('%%I', u.key), ', ' order by u.place) as names,
               string_agg(format('%%L', u.after), ', ' order by u.place) as after,
               string_agg(format('p.%%I::text', u.key), ', ' order by u.place) as texts
          from unnest(%(keys)s::text[], %(after)s::text[]) with ordinality as u(key, after, place)
         where u.key is not null) k;

-- name: compose_rows
-- Writes the statement that reads the rows of a part, sorted; identifiers, amounts and JSON as text.
select format('select %%s from %%I.%%I where %%s order by %%s',
              (select string_agg(case when c.type in ('uuid', 'jsonb') or c.type like 'numeric%%' then format('%%I::text', c.name) else format('%%I', c.name) end, ', ' order by c.place)
                 from unnest(%(names)s::text[], %(types)s::text[]) with ordinality as c(name, type, place)),
              %(schema)s::text, %(relation)s::text,
              concat_ws(' and ', case when cardinality(%(after)s::text[]) > 0 then format('(%%s) > (%%s)', k.names, k.after) end,
                        format('(%%s) <= (%%s)', k.names, k.last)), k.names)
  from (select string_agg(format('%%I', u.key), ', ' order by u.place) as names,
               string_agg(format('%%L', u.after), ', ' order by u.place) as after,
               string_agg(format('%%L', u.last), ', ' order by u.place) as last
          from unnest(%(keys)s::text[], %(after)s::text[], %(last)s::text[]) with ordinality as u(key, after, last, place)
         where u.key is not null) k;

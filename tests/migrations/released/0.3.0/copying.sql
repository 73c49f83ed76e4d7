-- name: bound_arrow
-- Bounds how long statements of a connection that copies rows wait for a lock, and run; its driver numbers the parameters.
select set_config('lock_timeout', $1::text, true), set_config('statement_timeout', $2::text, true);

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

-- name: compose_rows
-- Writes the statement that reads the rows of a part, sorted, after one key and up to another or up to so many; identifiers, amounts and JSON as text.
select format('select %%s from %%I.%%I where %%s order by %%s limit %%s',
              (select string_agg(case when c.type in ('uuid', 'jsonb') or c.type like 'numeric%%' then format('%%I::text', c.name) else format('%%I', c.name) end, ', ' order by c.place)
                 from unnest(%(names)s::text[], %(types)s::text[]) with ordinality as c(name, type, place)),
              %(schema)s::text, %(relation)s::text,
              concat_ws(' and ', 'true', case when cardinality(%(after)s::text[]) > 0 then format('(%%s) > (%%s)', k.names, k.after) end,
                        case when cardinality(%(last)s::text[]) > 0 then format('(%%s) <= (%%s)', k.names, k.last) end),
              k.names, coalesce(%(most)s::bigint::text, 'all'))
  from (select string_agg(format('%%I', u.key), ', ' order by u.place) as names,
               string_agg(format('%%L', u.after), ', ' order by u.place) as after,
               string_agg(format('%%L', u.last), ', ' order by u.place) as last
          from unnest(%(keys)s::text[], %(after)s::text[], %(last)s::text[]) with ordinality as u(key, after, last, place)
         where u.key is not null) k;

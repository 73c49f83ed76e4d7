-- name: find_schema
-- Returns whether a schema is there.
select to_regnamespace(quote_ident(%(schema)s::text)) is not null;

-- name: find_table
-- Returns whether a table is there.
select to_regclass(format('%%I.%%I', %(schema)s::text, %(relation)s::text)) is not null;

-- name: compose_schema
-- Writes the statement that makes a schema.
select format('create schema %%I', %(schema)s::text);

-- name: compose_drop
-- Writes the statement that drops a table.
select format('drop table %%I.%%I', %(schema)s::text, %(relation)s::text);

-- name: compose_table
-- Writes the statement that makes a table of these columns; types come from a list of known ones.
select format('create table %%I.%%I (%%s)', %(schema)s::text, %(relation)s::text,
              string_agg(format('%%I %%s', c.name, c.type), ', ' order by c.place))
  from unnest(%(names)s::text[], %(types)s::text[]) with ordinality as c(name, type, place);

-- name: compose_key
-- Writes the statement that gives a table its primary key.
select format('alter table %%I.%%I add primary key (%%s)', %(schema)s::text, %(relation)s::text,
              string_agg(format('%%I', k.name), ', ' order by k.place))
  from unnest(%(keys)s::text[]) with ordinality as k(name, place);

-- name: compose_analyze
-- Writes the statement that lets the planner see a table.
select format('analyze %%I.%%I', %(schema)s::text, %(relation)s::text);

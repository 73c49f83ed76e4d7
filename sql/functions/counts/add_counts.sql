-- Adds counts to sums, name by name.
create or replace function relevo.add_counts(sums jsonb, more jsonb) returns jsonb language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select case when more = '{}' then sums
              else sums || (select jsonb_object_agg(m.key, coalesce((sums ->> m.key)::numeric, 0) + m.value::numeric) from jsonb_each_text(more) m) end
$$;

revoke all on function relevo.add_counts from public;

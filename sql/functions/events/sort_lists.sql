-- Returns an object with each of its lists without doubles and in one order.
create or replace function relevo.sort_lists(given jsonb) returns jsonb
  language sql immutable
return (select coalesce(jsonb_object_agg(f.key, case jsonb_typeof(f.value) when 'array' then relevo.sort_list(given, f.key) -> f.key else f.value end), '{}')
          from jsonb_each(given) as f(key, value));

revoke all on function relevo.sort_lists from public;

-- Returns the list under a name without doubles and in one order.
create or replace function relevo.sort_list(given jsonb, name text) returns jsonb
  language sql immutable
return (select jsonb_build_object(name, coalesce(jsonb_agg(distinct (l.one collate "C")), '[]')) from jsonb_array_elements_text(given -> name) as l(one));

revoke all on function relevo.sort_list from public;

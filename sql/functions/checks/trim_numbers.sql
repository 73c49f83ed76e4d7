-- Returns a JSON value with every number written without trailing zeros.
create or replace function relevo.trim_numbers(value jsonb) returns jsonb
  language plpgsql immutable
as $$
begin
  return case jsonb_typeof(value)
    when 'object' then (select coalesce(jsonb_object_agg(o.key, relevo.trim_numbers(o.value)), '{}') from jsonb_each(value) o)
    when 'array' then (select coalesce(jsonb_agg(relevo.trim_numbers(a.value) order by a.place), '[]') from jsonb_array_elements(value) with ordinality as a(value, place))
    when 'number' then to_jsonb(trim_scale((value #>> '{}')::numeric))
    else value end;
end
$$;

revoke all on function relevo.trim_numbers from public;

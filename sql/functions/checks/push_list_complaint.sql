-- Returns what is wrong with the entries of a list in a push, in a sentence, or null.
create or replace function relevo.push_list_complaint(given jsonb, rule jsonb, place text) returns text language plpgsql immutable
as $$
declare
  entry jsonb;
  place_in int;
  wrong text;
begin
  for entry, place_in in select e.value, e.n - 1 from jsonb_array_elements(given) with ordinality as e(value, n) order by e.n loop
    wrong := relevo.push_complaint(jsonb_build_object(place_in, entry), jsonb_build_object(place_in, rule -> 'each'), place);
    if wrong is not null then
      return wrong;
    end if;
  end loop;
  if rule ? 'unique' and (select count(*) > count(distinct e ->> (rule ->> 'unique')) from jsonb_array_elements(given) e) then
    return format('%s must have another %s in each entry', place, rule ->> 'unique');
  end if;
  return null;
end
$$;

revoke all on function relevo.push_list_complaint from public;

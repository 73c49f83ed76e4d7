-- Refuses a field that is not a list of texts of a fitting length, by name.
create or replace function relevo.check_list(given jsonb, name text, most int, chars int, place text default '') returns void
  language plpgsql immutable
as $$
declare
  list jsonb := coalesce(given -> name, 'null');
begin
  if list = 'null' then
    return;
  end if;
  if jsonb_typeof(list) = 'array' and jsonb_array_length(list) <= most then
    if not exists (select from jsonb_array_elements(list) as l(each)
                    where jsonb_typeof(l.each) <> 'string' or length(l.each #>> '{}') not between 1 and chars) then
      return;
    end if;
  end if;
  perform relevo.refuse(format('%s%s must be a list of at most %s texts of 1 to %s characters', place, name, most, chars));
end
$$;

revoke all on function relevo.check_list from public;

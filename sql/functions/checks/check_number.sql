-- Refuses a field that is not a number within bounds, or not a whole one where it must be, by name.
create or replace function relevo.check_number(given jsonb, name text, low numeric, high numeric, whole boolean default false, place text default '')
  returns void language plpgsql immutable
as $$
begin
  if coalesce(given -> name, 'null') = 'null' then
    return;
  end if;
  if jsonb_typeof(given -> name) = 'number' then
    if (given ->> name)::numeric between low and high and (not whole or (given ->> name)::numeric % 1 = 0) then
      return;
    end if;
  end if;
  perform relevo.refuse(format('%s%s must be a %snumber between %s and %s', place, name, case when whole then 'whole ' else '' end, low, high));
end
$$;

revoke all on function relevo.check_number from public;

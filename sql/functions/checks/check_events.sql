-- Refuses the first of some events with which anything is wrong, by its position in the list.
create or replace function relevo.check_events(events jsonb) returns void
  language plpgsql stable
as $$
declare
  one jsonb;
  place bigint;
begin
  if jsonb_array_length(events) = 1 then
    perform relevo.check_event(events -> 0);
    return;
  end if;
  begin
    perform relevo.check_event(e) from jsonb_array_elements(events) as e where relevo.is_plain_event(e) is not true; -- most are plain
    return;
  exception when invalid_parameter_value then
    null; -- which one is found below
  end;
  begin
    for one, place in select e.one, e.place from jsonb_array_elements(events) with ordinality as e(one, place) loop
      perform relevo.check_event(one);
    end loop;
  exception when invalid_parameter_value then
    perform relevo.refuse_event(place, sqlerrm);
  end;
end
$$;

revoke all on function relevo.check_events from public;

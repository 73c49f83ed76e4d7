-- Returns until when each phone has to be left in peace by its event, the others now: the same as quiet_dues, for phones of many events. Null if
-- that is all of them.
create or replace function relevo.quiet_dues_of_events(of_events bigint[], phones uuid[], at timestamptz) returns timestamptz[]
  language plpgsql stable
as $$
declare
  any_default boolean := exists (select from relevo.quiet_defaults);
  dues timestamptz[];
  found record;
begin
  for found in
    select w.places, relevo.quiet_dues(e, w.phones, at) as dues
      from (select u.event_id, array_agg(u.phone order by u.place) as phones, array_agg(u.place::int order by u.place) as places
              from unnest(of_events, phones) with ordinality as u(event_id, phone, place)
             where any_default or exists (select from relevo.device_installations i
                                           where i.installation_id = u.phone and (i.quiet is not null or i.owner_quiet is not null) offset 0)
             group by u.event_id) w
      cross join lateral (select * from relevo.notification_events e where e.id = w.event_id offset 0) e
  loop
    for n in 1 .. coalesce(cardinality(found.dues), 0) loop
      dues := coalesce(dues, array_fill(at, array[cardinality(phones)]));
      dues[found.places[n]] := found.dues[n];
    end loop;
  end loop;
  return dues;
end
$$;

revoke all on function relevo.quiet_dues_of_events from public;

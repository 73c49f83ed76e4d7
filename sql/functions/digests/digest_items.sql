-- Returns the events of a phone's digest by their places among those of the window, without those that a sooner preference takes and, if something
-- changed about the phone, without those that it was told before.
create or replace function relevo.digest_items(events bigint[], mine int[], sooner int[], changed boolean, of_seq bigint, installation uuid, at timestamptz) returns bigint[]
  language plpgsql stable
as $$
declare
  found bigint[] := array(select events[u.place] from unnest(mine) as u(place) where sooner is null or u.place <> all (sooner));
  told bigint[];
begin
  if not changed then
    return found;
  end if;
  told := array(
    select c.event_id - unnest(c.offsets)
      from relevo.notification_deliveries d
      join relevo.digest_contents c on c.event_id = d.notification_event_id and c.seq = of_seq
     where d.installation_id = installation and d.event_type = 'relevo.digest' and d.event_day > (at at time zone 'UTC')::date - 17);
  return array(
    select u.id from unnest(found) with ordinality as u(id, place)
     where u.id <> all (told)
       and not exists (select from relevo.notification_events e
                         join relevo.notification_deliveries d on d.event_day = e.event_day and d.notification_event_id = e.id and d.installation_id = installation
                        where e.id = u.id)
     order by u.place);
end
$$;

revoke all on function relevo.digest_items from public;

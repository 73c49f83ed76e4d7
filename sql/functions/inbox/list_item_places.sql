-- Returns the places of an event in an inbox: one for each phone, one without phone, and one for a kept item. Each has the day of its delivery and
-- the time of its arrival.
create or replace function relevo.list_item_places(s relevo.inbox_subject, of_event bigint)
  returns table (place bigint, day date, at timestamptz)
  language sql stable
as $$
  select d.id, d.event_day, d.created_at
    from relevo.notification_events e
    cross join unnest(s.phones, s.since) as p(phone, since)
    cross join lateral (select d.id, d.event_day, d.created_at, d.inbox_id from relevo.notification_deliveries d
                         where d.event_day = e.event_day and (d.notification_event_id, d.installation_id) >= (e.id, p.phone)
                           and (d.notification_event_id, d.installation_id) <= (e.id, p.phone) offset 0) d
   where e.id = of_event and relevo.is_item_of(s.inbox_id, d.inbox_id, d.created_at, p.since)
  union all
  select o.inbox_place, null, e.fanout_finished_at
    from relevo.event_owners o
    join relevo.notification_events e on e.id = o.event_id
   where o.event_id = of_event and o.owner = s.owner and o.inbox_place is not null and (o.inbox_project = s.project or o.inbox_project = '' and relevo.takes_unscoped(s.owner, s.project))
  union all
  select k.place, null, k.at from relevo.kept_inbox_items k
   where k.inbox_id = s.inbox_id and k.event_id = of_event and (s.owner is not null or k.at > s.since[1])
$$;

revoke all on function relevo.list_item_places from public;

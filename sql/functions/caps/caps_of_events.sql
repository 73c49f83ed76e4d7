-- Returns the caps that apply to some events, each with one of its phones: for which owner each counts, in which hour, day or week of the owner the
-- event would be sent, and the places of these phones in the arrays. An owner counts once for an event, however many phones the owner has.
create or replace function relevo.caps_of_events(of_events bigint[], phones uuid[], dues timestamptz[], at timestamptz)
  returns table (cap int, most int, subject text, bucket timestamp, event_id bigint, places bigint[])
  language sql stable
as $$
  select c.id, c.most, p.subject, min(date_trunc(c.per, p.due_at at time zone p.zone)), p.event_id, array_agg(p.place)
    from (select u.place, u.event_id, e.category, coalesce('o:' || i.owner, 'i:' || i.installation_id) as subject, i.project, coalesce(u.due_at, at) as due_at,
                 relevo.cap_zone(i.owner, i.project, i.timezone, i.quiet, i.owner_quiet) as zone
            from unnest(of_events, phones, dues) with ordinality as u(event_id, phone, due_at, place)
            cross join lateral (select e.category from relevo.notification_events e where e.id = u.event_id offset 0) e
            cross join lateral (select i.installation_id, i.owner, i.project, i.timezone, i.quiet, i.owner_quiet from relevo.device_installations i
                                 where i.installation_id = u.phone offset 0) i
           where i.project in (select c.project from relevo.caps c)) p
    join relevo.caps c on c.project = p.project and c.category in ('', coalesce(p.category, ''))
   group by c.id, c.most, p.subject, p.event_id
$$;

revoke all on function relevo.caps_of_events from public;

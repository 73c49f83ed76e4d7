-- Counts events that fell due within the same hour, each for some phones, and returns the counts as of the first of them; the nil UUID stands
-- for all phones. A stream is what one origin sends of one type, watched from its first event on. An event that was released counts for the
-- day, not for the hour: there the brake judges anew.
create or replace function relevo.count_events(events bigint[], installations uuid[], passed boolean)
  returns table (counted uuid[], in_hour float8[], busiest_day int[])
  language plpgsql volatile
as $$
#variable_conflict use_column
begin
  insert into relevo.event_streams (event_type, origin, known_since)
  select e.event_type, e.origin, min(e.due_at)
    from (select distinct u.id from unnest(events) as u(id)) g
    cross join lateral (select e.event_type, case when e.licitacion_id is null and e.project is null then 'app' else relevo.event_origin(e) end as origin,
                               greatest(e.scheduled_at, e.created_at) as due_at
                          from relevo.notification_events e where e.id = g.id offset 0) e
   where not exists (select from relevo.event_streams s where s.event_type = e.event_type and s.origin = e.origin)
   group by e.event_type, e.origin
   order by e.event_type, e.origin -- in one order for all: no deadlock
  on conflict (event_type, origin) do nothing;
  return query
  with due as materialized (
    select s.id as stream_id, s.releases, u.installation_id, min(e.due_at) as due_at, count(*)::int as events,
           count(*) filter (where h.event_id is null)::int as judged
      from unnest(events, installations) as u(event_id, installation_id)
      cross join lateral (select e.event_type, case when e.licitacion_id is null and e.project is null then 'app' else relevo.event_origin(e) end as origin,
                                 greatest(e.scheduled_at, e.created_at) as due_at
                            from relevo.notification_events e where e.id = u.event_id offset 0) e
      cross join lateral (select s.id, s.releases from relevo.event_streams s where s.event_type = e.event_type and s.origin = e.origin offset 0) s
      left join lateral (select h.event_id from relevo.held_events h where h.event_id = u.event_id offset 0) h on true
     group by s.id, s.releases, u.installation_id
  ), written as (
    insert into relevo.event_counts as c (stream_id, installation_id, hour_at, day, in_hour, hour_before, passed_today, busiest_day, releases)
    select d.stream_id, d.installation_id, date_bin('1 hour', d.due_at, 'epoch'), (d.due_at at time zone 'UTC')::date, d.judged, 0,
           case when passed then d.events else 0 end, 0, d.releases
      from due d
     order by d.stream_id, d.installation_id -- in one order for all: no deadlock
    on conflict (stream_id, installation_id) do update
       set hour_at = greatest(c.hour_at, excluded.hour_at), day = greatest(c.day, excluded.day), releases = excluded.releases,
           in_hour = excluded.in_hour + case when c.releases = excluded.releases and c.hour_at >= excluded.hour_at then c.in_hour else 0 end,
           hour_before = case when c.releases <> excluded.releases then 0
                              when c.hour_at >= excluded.hour_at then c.hour_before
                              when c.hour_at = excluded.hour_at - interval '1 hour' then c.in_hour
                              else 0 end,
           passed_today = excluded.passed_today + case when c.day >= excluded.day then c.passed_today else 0 end,
           busiest_day = case when c.day >= excluded.day then c.busiest_day -- half of it is forgotten within two weeks
                              else greatest(c.passed_today, c.busiest_day * 0.95 ^ least(1000, excluded.day - c.day))::int end
    returning c.installation_id, c.hour_at, c.in_hour, c.hour_before, c.busiest_day
  )
  select array_agg(w.installation_id), array_agg(relevo.count_of_hour(w.hour_at, w.in_hour, w.hour_before, f.due_at)), array_agg(w.busiest_day)
    from written w cross join (select min(d.due_at) as due_at from due d) f;
end
$$;

revoke all on function relevo.count_events from public;

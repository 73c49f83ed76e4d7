-- needs relevo 0.2.0
-- Fans out by functions: a slice, or many small events, with all that belongs to it in one call, whose plans are kept by the server.

-- Counts events that fell due within the same hour, each for some phones, of which the nil one stands for all, and tells what that comes to
-- at the moment of the first of them. What one origin sends of one type is watched from its first event on. An event that was released is
-- counted for the day, not for the hour: there the brake judges anew.
create function relevo.count_events_1(events bigint[], installations uuid[], passed boolean)
  returns table (counted uuid[], in_hour float8[], busiest_day int[])
  language plpgsql volatile
as $$
#variable_conflict use_column
begin
  insert into relevo.event_streams (event_type, origin, known_since)
  select e.event_type, e.origin, min(e.due_at)
    from (select distinct u.id from unnest(events) as u(id)) g
    cross join lateral (select e.event_type, case when e.licitacion_id is null then 'app' else relevo.event_origin(e) end as origin,
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
      cross join lateral (select e.event_type, case when e.licitacion_id is null then 'app' else relevo.event_origin(e) end as origin,
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
    returning c.installation_id, relevo.count_of_hour(c.hour_at, c.in_hour, c.hour_before, (select min(d.due_at) from due d)) as in_hour, c.busiest_day
  )
  select array_agg(w.installation_id), array_agg(w.in_hour), array_agg(w.busiest_day) from written w;
end
$$;

-- The sequence number at which a slice of an event's candidates ends; null if fewer are left than a slice holds.
create function relevo.slice_end_1(of_event bigint, audience text, buckets text[], after_seq bigint, upto_seq bigint, most int) returns bigint
  language plpgsql stable
as $$
begin
  if audience = 'everyone' then
    return (select i.seq from relevo.device_installations i where i.seq > after_seq and i.seq <= upto_seq order by i.seq offset most - 1 limit 1);
  elsif audience = 'matching' then
    return (select c.seq
              from (select x.seq
                      from unnest(buckets) as b(bucket)
                      cross join lateral (select x.seq from relevo.preference_index x
                                           where x.bucket = b.bucket and x.seq > after_seq and x.seq <= upto_seq
                                           order by x.seq limit most) x
                     order by x.seq limit most) c
             order by c.seq offset most - 1);
  end if;
  return (select i.seq
            from (select i.seq from relevo.event_audience a
                    cross join lateral (select i.seq from relevo.device_installations i where i.installation_id = a.installation_id offset 0) i
                   where a.event_id = of_event
                  union all
                  select i.seq from relevo.event_owners o
                    cross join lateral (select i.seq from relevo.device_installations i where i.owner = o.owner offset 0) i
                   where o.event_id = of_event) i
           where i.seq > after_seq and i.seq <= upto_seq
           order by i.seq offset most - 1 limit 1);
end
$$;

-- Makes and queues the deliveries of an event's next slice, in chunks of a request's worth, and moves its cursor with it; the caller has
-- locked the event. Its first slice writes down its day and its audience, which is whoever is registered by now. Slice and cursor commit
-- together, so that no delivery of it can be there already; should one be, the call fails on its key, and `step_aside` makes the others.
-- Of a watched event the phones are counted, or the first hundred of them. Nothing at all if the event's month is sealed.
create function relevo.fan_out_slice_1(of_event bigint, most int, watched boolean, step_aside boolean, given_at timestamptz)
  returns table (is_last boolean, targets int, created int, projects text[], counted uuid[], in_hour float8[], busiest_day int[])
  language plpgsql volatile
as $$
#variable_conflict use_column
declare
  at timestamptz := coalesce(given_at, now());
  e relevo.notification_events;
  buckets text[];
  slice_end bigint;
  follows boolean := exists (select from relevo.event_followers f where f.event_id = of_event);
  phones uuid[];
begin
  select * into e from relevo.notification_events n where n.id = of_event;
  if e.event_day is null then
    e.event_day := (at at time zone 'UTC')::date;
    e.fanout_started_at := at;
    e.fanout_upto := coalesce((select max(i.seq) from relevo.device_installations i), 0);
    perform relevo.ensure_partitions(e.event_day, 1);
  end if;
  if relevo.hold_open(array[e.event_day]) = '{}' then
    return;
  end if;
  buckets := case when e.audience = 'matching' then relevo.event_buckets(e) end;
  slice_end := relevo.slice_end_1(of_event, e.audience, buckets, e.fanout_cursor, e.fanout_upto, most);
  is_last := slice_end is null;
  slice_end := coalesce(slice_end, e.fanout_upto);
  with target as materialized (
    select t.installation_id, t.provider, t.project,
           step_aside and exists (select from relevo.notification_deliveries d
                                   where d.event_day = e.event_day and d.notification_event_id = of_event
                                     and d.installation_id = t.installation_id offset 0) as is_there
      from relevo.slice_targets(of_event, e.audience, buckets, e.fanout_cursor, slice_end) t
     where (e.project is null or t.project = e.project)
       and not (follows and exists (select from relevo.event_followers f -- whoever got what this event follows is not told again
                                      join relevo.notification_events o on o.id = f.former_event_id
                                      join relevo.notification_deliveries d
                                        on d.event_day = o.event_day and d.notification_event_id = o.id and d.installation_id = t.installation_id
                                     where f.event_id = of_event and d.status in ('sent', 'ok', 'unconfirmed', 'unknown') offset 0))
  ), made as (
    insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, provider, project, lane,
                                                at_most_once, deadline_at, created_at)
    select e.event_day, of_event, t.installation_id, e.event_type, t.provider, relevo.sending_project(t.provider, t.project), e.lane,
           e.at_most_once, e.deadline_at, now()
      from target t
     where not t.is_there
    returning id, installation_id, project
  ), queued as (
    insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                                   ids, installations)
    select m.project, e.lane, at, e.event_day, of_event, e.event_type, now(), 0, 0, false, array_agg(m.id), array_agg(m.installation_id)
      from (select m.*, (row_number() over (partition by m.project) - 1) / 100 as piece from made m) m
     group by m.project, m.piece
  )
  select (select count(*) from target), (select count(*) from made),
         case when watched then array(select m.installation_id from made m order by m.installation_id limit 100) end,
         case when watched then array(select distinct m.project from made m) end
    into targets, created, phones, projects;
  update relevo.notification_events n
     set state = case when is_last then 'fanned' else 'fanning' end, event_day = e.event_day, fanout_started_at = e.fanout_started_at,
         fanout_upto = e.fanout_upto, fanout_cursor = slice_end, targets_selected = e.targets_selected + targets,
         deliveries_created = e.deliveries_created + created, fanout_finished_at = case when is_last then at end, updated_at = at
   where n.id = of_event;
  if created > 0 then
    insert into relevo.event_progress_deltas (event_id, status, deliveries) values (of_event, 'pending', created);
    perform relevo.wake('dispatch');
    if watched then
      phones := case when e.audience <> 'installations' then '{00000000-0000-0000-0000-000000000000}'::uuid[] else '{}' end || phones;
      select c.* into counted, in_hour, busiest_day from relevo.count_events_1(array_fill(of_event, array[cardinality(phones)]), phones, true) c;
    end if;
  end if;
  return next;
end
$$;

-- Locks the events that are due to fan out, have not begun, name few phones, and fell due in one lane and hour; in the order of fan-out, but
-- passing by all others.
create function relevo.pick_small_events_1(of_lane text, due_hour timestamptz, few int, most int, left_out bigint[], at timestamptz)
  returns table (id bigint, is_late boolean, named int)
  language sql volatile
as $$
  select e.id, (e.deadline_at <= at) is true, a.named
    from relevo.notification_events e
    cross join lateral (select count(*)::int as named
                          from (select 1 from relevo.event_audience a where a.event_id = e.id
                                union all
                                select 1 from relevo.event_owners o
                                  cross join lateral (select 1 from relevo.device_installations i where i.owner = o.owner limit few + 1) i
                                 where o.event_id = e.id
                                 limit few + 1) a) a
   where e.state in ('waiting', 'fanning') and e.lane = of_lane and e.scheduled_at <= at and e.scheduled_at < due_hour + interval '1 hour'
     and e.audience = 'installations' and e.event_day is null and a.named <= few
     and date_bin('1 hour', greatest(e.scheduled_at, e.created_at), 'epoch') = due_hour
     and e.id <> all (left_out)
   order by e.lane desc, e.scheduled_at, e.id
   limit most
     for update of e skip locked
$$;

-- Ends events whose deadline passed before they fanned out.
create function relevo.expire_events_1(late bigint[], at timestamptz) returns void language sql volatile
as $$
  update relevo.notification_events e
     set state = 'cancelled', ended_at = at, end_reason = 'its deadline passed before it fanned out', updated_at = at
   where e.id = any (late)
$$;

-- Fans out small personal events together, up to so many events and deliveries, from beginning to end; what is too late ends. Of watched
-- ones each phone is counted beside its event. Without a number of deliveries made if today's month is sealed: then nothing was.
create function relevo.fan_out_small_1(of_lane text, due_hour timestamptz, few int, most_events int, most int, left_out bigint[], watched boolean,
                                       given_at timestamptz)
  returns table (fanned bigint[], late bigint[], created int, events bigint[], installations uuid[], counted uuid[], in_hour float8[],
                 busiest_day int[])
  language plpgsql volatile
as $$
#variable_conflict use_column
declare
  at timestamptz := coalesce(given_at, now());
begin
  select coalesce(array_agg(p.id) filter (where not p.is_late), '{}'), coalesce(array_agg(p.id) filter (where p.is_late), '{}')
    into fanned, late
    from (select s.id, s.is_late, sum(s.named) over (rows unbounded preceding) as so_far
            from relevo.pick_small_events_1(of_lane, due_hour, few, most_events, left_out, at) s) p
   where p.so_far <= most;
  if late <> '{}' then
    perform relevo.expire_events_1(late, at);
  end if;
  created := 0;
  if fanned <> '{}' then
    created := null;
    select f.* into created, events, installations from relevo.fan_out_events_1(fanned, watched, given_at) f;
    if created > 0 then
      perform relevo.wake('dispatch');
      if watched then
        select c.* into counted, in_hour, busiest_day from relevo.count_events_1(events, installations, true) c;
      end if;
    end if;
  end if;
  return next;
end
$$;

revoke all on function relevo.count_events_1(bigint[], uuid[], boolean) from public;
revoke all on function relevo.slice_end_1(bigint, text, text[], bigint, bigint, int) from public;
revoke all on function relevo.fan_out_slice_1(bigint, int, boolean, boolean, timestamptz) from public;
revoke all on function relevo.pick_small_events_1(text, timestamptz, int, int, bigint[], timestamptz) from public;
revoke all on function relevo.expire_events_1(bigint[], timestamptz) from public;
revoke all on function relevo.fan_out_small_1(text, timestamptz, int, int, int, bigint[], boolean, timestamptz) from public;

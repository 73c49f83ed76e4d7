-- needs relevo 0.2.0
-- Small functions of the hot ways become part of the statements that call them, or keep their plans on every version of PostgreSQL: before 18
-- a function in SQL that writes is planned at each call.

-- How many events fell due within the hour that ends at a moment, by the counts of two clock hours.
create or replace function relevo.count_of_hour(hour_at timestamptz, in_hour int, hour_before int, at timestamptz) returns float8
  language sql immutable
  -- spans are compared, not moments: that depends on no time zone, so that the planner may put it in its place
  return case when at - hour_at < interval '1 hour'
              then in_hour + hour_before * (1 - greatest(0, extract(epoch from at - hour_at)::float8 / 3600))
              when at - hour_at < interval '2 hours' then in_hour * (2 - extract(epoch from at - hour_at)::float8 / 3600)
              else 0 end;

-- Counts events that fell due within the same hour, each for some phones, of which the nil one stands for all, and tells what that comes to
-- at the moment of the first of them. What one origin sends of one type is watched from its first event on. An event that was released is
-- counted for the day, not for the hour: there the brake judges anew.
create or replace function relevo.count_events_1(events bigint[], installations uuid[], passed boolean)
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
    returning c.installation_id, c.hour_at, c.in_hour, c.hour_before, c.busiest_day
  )
  select array_agg(w.installation_id), array_agg(relevo.count_of_hour(w.hour_at, w.in_hour, w.hour_before, f.due_at)), array_agg(w.busiest_day)
    from written w cross join (select min(d.due_at) as due_at from due d) f;
end
$$;

-- The buckets in which preferences that may match an event stand.
create or replace function relevo.event_buckets(e relevo.notification_events) returns text[] language plpgsql immutable
as $$
begin
  return array(
    select '*'
    union select 'topic:' || t.topic from unnest(e.match_topics) as t(topic)
    union select 'k:' || w.word from unnest(string_to_array(btrim(coalesce(e.match_words, '')), ' ')) as w(word) where w.word <> ''
    union select 'r:' || r.prefix from unnest(e.match_prefixes) as r(prefix)
    union select 'g:' || e.match_region where e.match_region is not null
    union select 't:' || relevo.text_key(btrim(e.match_tipo)) where e.match_tipo is not null);
end
$$;

-- Calls two of the replicas that sleep, if the fleet says that a cycle does; many calls of one transaction are one.
create or replace function relevo.wake(cycle_name text) returns void language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  called text[];
begin
  if not exists (select from relevo.cycle_state s where s.cycle = cycle_name and s.source = '' and s.asleep) then
    return;
  end if;
  called := array(
    select w.worker_id from relevo.workers w
     where cycle_name = any (w.asleep) and w.stopped_at is null and w.lost_at is null and w.stopping_at is null and w.wakeups = 'listening'
       and w.last_seen_at + w.lease_ms * interval '1 millisecond' > now()
     order by md5(w.worker_id || pg_current_xact_id()::text)
     limit 2);
  if called = '{}' then -- nobody is known to hear it: all are asked
    perform pg_notify('relevo_wake', cycle_name);
  else
    perform pg_notify('relevo_wake', cycle_name || ' ' || c.worker_id) from unnest(called) as c(worker_id);
  end if;
end
$$;

-- Writes a claim of some chunks.
create or replace function relevo.write_claim_1(claim uuid, worker text, of_cycle text, lease int, at timestamptz, chunks relevo.due_chunks[])
  returns void language plpgsql volatile
as $$
begin
  insert into relevo.claims (token, worker_id, cycle, claimed_at, lease_ms, leased_until, days, ids, events, due_at)
  select claim, worker, of_cycle, at, lease, at + lease * interval '1 millisecond', array_agg(c.event_day), array_agg(u.id),
         array(select distinct n.event_id from unnest(chunks) n), min(c.due_at)
    from unnest(chunks) c cross join lateral unnest(c.ids) as u(id);
end
$$;

-- Puts back what a claim does not take of a chunk.
create or replace function relevo.put_back_1(chunk relevo.due_chunks, left_ids bigint[], left_installations uuid[]) returns void
  language plpgsql volatile
as $$
begin
  insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                                 ids, installations)
  values (chunk.project, chunk.lane, chunk.due_at, chunk.event_day, chunk.event_id, chunk.event_type, chunk.created_at, chunk.attempt_count,
          chunk.lapse_count, chunk.had_error, left_ids, left_installations);
end
$$;

-- Locks the events that are due to fan out, have not begun, name few phones, and fell due in one lane and hour; in the order of fan-out, but
-- passing by all others.
create or replace function relevo.pick_small_events_1(of_lane text, due_hour timestamptz, few int, most int, left_out bigint[], at timestamptz)
  returns table (id bigint, is_late boolean, named int)
  language plpgsql volatile
as $$
#variable_conflict use_column
begin
  return query
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
     for update of e skip locked;
end
$$;

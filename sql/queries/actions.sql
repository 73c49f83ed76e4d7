-- name: pause_cycle
-- Switches a cycle, or one source of it, off in the whole fleet, with a reason; one that is off already keeps its time and reason, and returns them.
with before as materialized (
  select s.paused_at, s.paused_reason from relevo.cycle_state s
   where s.cycle = %(cycle)s and s.source = %(source)s and s.paused_at is not null for update
), written as (
  insert into relevo.cycle_state as s (cycle, source, paused_at, paused_reason)
  select %(cycle)s, %(source)s, now(), %(reason)s where not exists (select from before)
  on conflict (cycle, source) do update set paused_at = excluded.paused_at, paused_reason = excluded.paused_reason where s.paused_at is null
)
select b.paused_at, b.paused_reason from before b;

-- name: resume_cycle
-- Switches a paused cycle, or one source of it, on again; returns nothing if it was not paused.
update relevo.cycle_state set paused_at = null, paused_reason = null
 where cycle = %(cycle)s and source = %(source)s and paused_at is not null
returning cycle, relevo.wake_now(cycle); -- what waited goes on at once

-- name: retry_rejects
-- Makes rejects due at once, so that the next pass of their source tries them again.
update relevo.ingest_rejects set retry_at = now(), updated_at = now()
 where resolved_at is null and (%(source)s::text is null or source = %(source)s) and (%(reject_id)s::bigint is null or id = %(reject_id)s);

-- name: grant_worker
-- Gives a role what running Relevo takes: to read and write rows and to call functions, those of later migrations included.
select relevo.grant_worker(%(role)s);

-- name: grant_app
-- Lets a role of the database enqueue, cancel, complete, delete, read events and register installations, and nothing else.
select relevo.grant_app(%(role)s);

-- name: count_dead
-- Counts the dead letters a redrive would take, up to a bound, by error code, and those among them whose deadline has passed.
select coalesce(g.error_code, 'none') as error_code, g.deliveries, g.too_late,
       (select d.last_error_message from relevo.notification_deliveries d where d.event_day = g.first_day and d.id = g.first_ids[1]) as example, g.first_ids
  from (select l.error_code, count(*)::int as deliveries, count(*) filter (where e.deadline_at <= now())::int as too_late,
               (array_agg(l.delivery_id order by l.delivery_id))[1:3] as first_ids, (array_agg(l.event_day order by l.delivery_id))[1] as first_day
          from (select l.event_day, l.delivery_id, l.event_id, l.error_code
                  from relevo.dead_letters l
                 where (%(ids)s::bigint[] is null or l.delivery_id = any (%(ids)s::bigint[]))
                   and (%(error_code)s::text is null or l.error_code = %(error_code)s or %(error_code)s = 'none' and l.error_code is null)
                   and (%(event_id)s::bigint is null or l.event_id = %(event_id)s)
                   and (%(project)s::text is null or l.project = %(project)s)
                   and (%(event_type)s::text is null
                        or exists (select from relevo.notification_events t where t.id = l.event_id and t.event_type = %(event_type)s))
                 limit %(most)s) l
          left join relevo.notification_events e on e.id = l.event_id
         group by l.error_code) g
 order by g.deliveries desc;

-- name: try_redrive
-- Returns what a redrive would do: how many dead letters it finds, up to a bound. It also counts those past their deadline, in a month that is
-- being archived, or of an event that has ended; and, out of so many of the others, those whose phone takes no pushes any more. Each counts once.
with meant as materialized (
  select l.event_day, l.delivery_id, l.event_id
    from relevo.dead_letters l
   where (%(ids)s::bigint[] is null or l.delivery_id = any (%(ids)s::bigint[]))
     and (%(error_code)s::text is null or l.error_code = %(error_code)s or %(error_code)s = 'none' and l.error_code is null)
     and (%(event_id)s::bigint is null or l.event_id = %(event_id)s)
     and (%(project)s::text is null or l.project = %(project)s)
     and (%(event_type)s::text is null or exists (select from relevo.notification_events t where t.id = l.event_id and t.event_type = %(event_type)s))
   limit %(most)s
), judged as materialized (
  select b.event_day, b.event_id, b.deliveries,
         exists (select from relevo.archive_exports x
                  where x.entity = 'notification_deliveries' and x.month = date_trunc('month', b.event_day::timestamp)::date) as archived,
         coalesce(e.deadline_at <= now(), false) as too_late, e.ended_at is not null as ended
    from (select m.event_day, m.event_id, count(*) as deliveries from meant m group by m.event_day, m.event_id) b
    left join relevo.notification_events e on e.id = b.event_id
)
select c.found, c.archived, c.too_late, c.ended, p.looked, p.silent
  from (select coalesce(sum(j.deliveries), 0)::int as found, coalesce(sum(j.deliveries) filter (where j.archived), 0)::int as archived,
               coalesce(sum(j.deliveries) filter (where j.too_late and not j.archived), 0)::int as too_late,
               coalesce(sum(j.deliveries) filter (where j.ended and not j.too_late and not j.archived), 0)::int as ended
          from judged j) c
  cross join (select count(*)::int as looked, count(*) filter (where not coalesce(relevo.may_receive(i), false))::int as silent
                from (select m.event_day, m.delivery_id
                        from meant m join judged j on j.event_day = m.event_day and j.event_id = m.event_id
                       where not j.archived and not j.too_late and not j.ended
                       limit %(look)s) m
                join relevo.notification_deliveries d on d.event_day = m.event_day and d.id = m.delivery_id
                left join relevo.device_installations i on i.installation_id = d.installation_id) p;

-- name: redrive_dead
-- Opens a batch of dead letters again, behind a given one, as if they had never been tried, and counts them over; those past their deadline
-- stay. Returns how many it looked at and the last of them, and what it opened by project, with the events it is of. `chosen` is the batch by
-- what was asked for; `dead` what of it may be opened, locked before the deliveries are, in months that nobody seals meanwhile.
with recursive days as ( -- each day that has some, by the key: there may be very many of one day
  select (select min(n.event_day) from relevo.dead_letters n) as event_day
  union all
  select (select min(n.event_day) from relevo.dead_letters n where n.event_day > y.event_day) from days y where y.event_day is not null
), unsealed as materialized ( -- a month on its way to the archive is not written to any more
  select relevo.hold_open(array(select y.event_day from days y where y.event_day is not null)) as days
), chosen as materialized (
  select l.event_day, l.delivery_id, l.event_id
    from relevo.dead_letters l
   where l.delivery_id > %(after)s
     and (%(ids)s::bigint[] is null or l.delivery_id = any (%(ids)s::bigint[]))
     and (%(error_code)s::text is null or l.error_code = %(error_code)s or %(error_code)s = 'none' and l.error_code is null)
     and (%(event_id)s::bigint is null or l.event_id = %(event_id)s)
     and (%(project)s::text is null or l.project = %(project)s)
     and (%(event_type)s::text is null or exists (select from relevo.notification_events t where t.id = l.event_id and t.event_type = %(event_type)s))
   order by l.delivery_id
   limit %(limit)s
), dead as materialized (
  select l.event_day, l.delivery_id as id, l.died_at
    from chosen c
    join relevo.dead_letters l on l.event_day = c.event_day and l.delivery_id = c.delivery_id
   where l.died_at <= %(began)s::timestamptz -- what fails again meanwhile is left alone
     and l.event_day = any ((select s.days from unsealed s)::date[])
     and not exists (select from relevo.notification_events e where e.id = l.event_id and e.deadline_at <= relevo.now(%(now)s))
   order by l.event_day, l.delivery_id
     for update of l
), taken as (
  delete from relevo.dead_letters l using dead x where l.event_day = x.event_day and l.delivery_id = x.id
), opened as (
  update relevo.notification_deliveries d
     set status = 'pending', attempt_count = 0, lapse_count = 0, completed_at = null, updated_at = relevo.now(%(now)s)
    from dead x
   where d.event_day = any (array[x.event_day]) and d.id = x.id and d.status = 'failed'
  returning d.event_day, d.id, d.notification_event_id, d.project, d.last_error_code, d.last_error_message, x.died_at
), told as ( -- a death that was noted by nobody, as one of before 0.3; only the first twenty of a delivery are kept
  insert into relevo.failed_attempts (event_day, delivery_id, n, at, attempt, found_by, became, error_code, error_message)
  select o.event_day, o.id, f.n, o.died_at, 0, 'redrive', 'failed', o.last_error_code, o.last_error_message
    from opened o
    cross join lateral (select coalesce(max(f.n), 0) + 1 as n, coalesce(bool_or(f.became = 'failed' and f.at >= o.died_at), false) as known
                          from relevo.failed_attempts f where f.event_day = o.event_day and f.delivery_id = o.id) f
   where not f.known and f.n <= 20
  on conflict do nothing
), progress as materialized (
  select relevo.move_counts(array_agg(o.notification_event_id), array_agg('failed'::text), array_agg('pending'::text)) from opened o
), repeated as (
  insert into relevo.event_repeat_deltas (event_id, repeats) select o.notification_event_id, count(*)::int from opened o group by o.notification_event_id
)
select n.looked_at, n.last_id, o.project, o.events, o.days, o.ids
  from (select count(*)::int as looked_at, max(c.delivery_id) as last_id from chosen c) n
  left join (select o.project, array_agg(distinct o.notification_event_id) as events, array_agg(o.event_day) as days, array_agg(o.id) as ids
               from opened o group by o.project) o on true
 where (select count(*) from progress) > 0;

-- name: queue_deliveries
-- Puts deliveries that were opened again into the queue, due at once.
select relevo.queue_deliveries(%(days)s::date[], %(ids)s::bigint[], array_fill(relevo.now(%(now)s), array[cardinality(%(ids)s::bigint[])]));

-- name: tell_redriven
-- Writes down that dead letters of a project were opened again, when that began, of which events, and by whom.
insert into relevo.project_incidents (project, at, what, detail, events, actor)
values (%(project)s, %(began)s::timestamptz, 'redriven', %(detail)s, %(events)s::bigint[], %(actor)s);

-- name: ask_time
-- Returns the database's time.
select coalesce(%(now)s::timestamptz, clock_timestamp());

-- name: wake_dispatch
-- Wakes dispatch, if it sleeps.
select relevo.wake('dispatch');

-- name: release_project
-- Lets a project send again: its breaker is probed at once, its brakes are off and judge anew, its rate is full; returns what held it.
with before as materialized (
  select p.project, array_remove(array[case when p.breaker <> 'closed' then 'breaker' end, case when p.pruning_stopped_at is not null then 'brake' end,
                                       case when p.rate_share < 1 or p.rest_until > now() then 'rate' end], null) as held
    from relevo.projects p where p.project = %(project)s for update
), progress as (
  insert into relevo.project_incidents (project, at, what) select b.project, now(), 'released' from before b where b.held <> '{}'
)
update relevo.projects p
   set rate_share = 1, rest_until = null, failures = 0, trips = 0, pruning_stopped_at = null, filled_at = now(),
       probe_at = case when p.breaker = 'closed' then null else now() end,
       judged_since = greatest(now(), (select max(t.at) from relevo.push_tallies t where t.project = %(project)s))
  from before b
 where p.project = b.project
returning b.held;

-- name: release_streams
-- Lets the runaway brake judge a type anew, as if nothing had been counted this hour; names its origins and the last event that it holds.
with before as materialized (
  select s.id, s.origin, s.held_projects, s.held_at is not null as held
    from relevo.event_streams s
   where s.event_type = %(event_type)s and (%(origin)s::text is null or s.origin = %(origin)s)
     for update
), told as (
  insert into relevo.project_incidents (project, at, what, detail)
  select distinct p.project, now(), 'runaway_released', %(detail)s from before b cross join unnest(b.held_projects) as p(project) where b.held
), released as (
  update relevo.event_streams s
     set releases = s.releases + 1, held_at = null, held_reason = null, held_above = null, held_projects = '{}'
    from before b where s.id = b.id
)
select b.origin,
       (select case when x.stream_id = b.id then x.event_id end -- written so that it is one index lookup by both columns, however much a stream holds
          from (select h.stream_id, h.event_id from relevo.held_events h
                 where (h.stream_id, h.event_id) <= (b.id, 9223372036854775807) and h.released_at is null
                 order by h.stream_id desc, h.event_id desc limit 1) x) as last_event
  from before b order by b.origin;

-- name: release_events
-- Lets a batch of a type's held events fan out, or ends them; returns how many it looked at, how many those were, and the first of them.
with waiting as materialized (
  select h.event_id
    from relevo.event_streams s
    join relevo.held_events h on h.stream_id = s.id and h.released_at is null and h.event_id <= %(last_event)s
   where s.event_type = %(event_type)s and (%(origin)s::text is null or s.origin = %(origin)s)
   order by h.event_id
   limit %(limit)s
), locked as materialized ( -- an event before the note that it is held, as whoever ends or deletes one
  select e.id from waiting w cross join lateral (select e.id from relevo.notification_events e where e.id = w.event_id for update) e
), opened as (
  update relevo.notification_events e
     set state = case when %(drop)s then 'cancelled' else 'waiting' end, ended_at = case when %(drop)s then now() end,
         end_reason = case when %(drop)s then 'it was dropped while the runaway brake held it' end, updated_at = now()
    from locked l
   where e.id = l.id and e.state = 'held'
  returning e.id
), noted as (
  update relevo.held_events h set released_at = now() from waiting w
   where h.event_id = w.event_id and h.released_at is null and (select count(*) from locked) >= 0
)
select (select count(*) from waiting)::int, (select count(*) from opened)::int, array(select o.id from opened o order by o.id limit %(named)s);

-- name: release_repeats
-- Lets the deliveries of a type's events be sent again that were repeated too often, or ends those events; returns how many events, and the first.
with held as materialized (
  select r.event_id
    from relevo.event_repeats r
    join relevo.notification_events e on e.id = r.event_id
   where r.held_at is not null and e.event_type = %(event_type)s
     and (%(origin)s::text is null or relevo.event_origin(e) = %(origin)s)
     for update of r
), freed as (
  delete from relevo.event_repeats r using held h where r.event_id = h.event_id
)
select count(*)::int, (array_agg(h.event_id order by h.event_id))[1:%(named)s],
       count(*) filter (where %(drop)s and relevo.cancel(h.event_id, 'it was dropped while the runaway brake held it'))::int
  from held h;

-- name: wake_fanout
-- Wakes fan-out, if it sleeps.
select relevo.wake('fanout');

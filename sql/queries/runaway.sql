-- name: find_stream
-- Finds what an event belongs to, how often that came within the hour before it fell due, and whether this event was released.
select s.id, e.event_type, o.origin, greatest(e.scheduled_at, e.created_at) as due_at, s.known_since, s.held_at, s.held_above,
       case when c.releases = s.releases
            then relevo.count_of_hour(c.hour_at, c.in_hour, c.hour_before, greatest(e.scheduled_at, e.created_at)) else 0 end as in_hour,
       h.event_id is not null as released
  from relevo.notification_events e
  cross join lateral (select relevo.event_origin(e) as origin offset 0) o
  left join relevo.event_streams s on s.event_type = e.event_type and s.origin = o.origin
  left join relevo.event_counts c on c.stream_id = s.id and c.installation_id = '00000000-0000-0000-0000-000000000000'
  left join relevo.held_events h on h.event_id = e.id
 where e.id = %(event_id)s;

-- name: count_events
-- Counts events, each for some phones, of which the nil one stands for all, and returns what that comes to.
select c.counted, c.in_hour, c.busiest_day
  from relevo.count_events(%(events)s::bigint[], %(installations)s::uuid[], %(passed)s) c;

-- name: hold_event
-- Keeps an event from fanning out until it is released, with what was found; what its fan-out had begun is undone.
with held as (
  update relevo.notification_events e
     set state = 'held', event_day = null, fanout_started_at = null, fanout_upto = null, fanout_cursor = 0,
         updated_at = relevo.now(%(now)s)
   where e.id = %(event_id)s
  returning e.id
)
insert into relevo.held_events (event_id, stream_id, held_at, reason)
select h.id, %(stream_id)s, relevo.now(%(now)s), %(reason)s from held h;

-- name: mark_stream
-- Notes that an event of a stream was held, why, whom it concerns, and above what number the next are held unseen.
update relevo.event_streams s
   set held_at = %(due_at)s, held_reason = %(reason)s, held_above = %(above)s,
       held_projects = case when cardinality(%(projects)s::text[]) = 0 then s.held_projects else %(projects)s::text[] end
 where s.id = %(stream_id)s;

-- name: tell_stopped
-- Writes down, for each project whose phones it concerns, what the brake stopped.
insert into relevo.project_incidents (project, at, what, detail)
select p.project, relevo.now(%(now)s), 'runaway_stopped', %(detail)s from unnest(%(projects)s::text[]) as p(project);

-- name: expire_held
-- Ends a batch of held events whose deadline passed, or one of them, but for those left out.
with late as materialized (
  select e.id from relevo.notification_events e
   where e.state = 'held' and e.deadline_at <= relevo.now(%(now)s)
     and e.id <> all (%(left_out)s::bigint[]) and (%(alone)s::bigint is null or e.id = %(alone)s)
   order by e.deadline_at, e.id
   limit %(limit)s
     for update skip locked
), noted as (
  update relevo.held_events h set released_at = relevo.now(%(now)s) from late l where h.event_id = l.id
)
update relevo.notification_events e
   set state = 'cancelled', ended_at = relevo.now(%(now)s), end_reason = 'its deadline passed while the runaway brake held it',
       updated_at = relevo.now(%(now)s)
  from late l
 where e.id = l.id;

-- name: fold_repeats
-- Folds how often pushes were tried again into their events' sums, which begin anew after an hour, and returns those of bulk events that are not held.
with oldest as materialized (
  select d.id from relevo.event_repeat_deltas d order by d.id limit %(limit)s for update skip locked
), taken as (
  delete from relevo.event_repeat_deltas x using oldest o where x.id = o.id returning x.event_id, x.repeats
), folded as (
  insert into relevo.event_repeats as r (event_id, since, repeats)
  select t.event_id, relevo.now(%(now)s), sum(t.repeats) from taken t group by t.event_id order by t.event_id
  on conflict (event_id) do update
     set since = case when r.since < excluded.since - interval '1 hour' then excluded.since else r.since end,
         repeats = excluded.repeats + case when r.since < excluded.since - interval '1 hour' then 0 else r.repeats end
  returning r.event_id, r.repeats, r.held_at
)
select f.event_id, e.event_type, f.repeats, e.deliveries_created
  from folded f join relevo.notification_events e on e.id = f.event_id
 where f.held_at is null and e.lane = 'bulk';

-- name: hold_repeats
-- Keeps the deliveries of events from being sent until they are released, and names the types' projects, out of a bounded sample.
with held as (
  update relevo.event_repeats r
     set held_at = relevo.now(%(now)s), reason = u.reason
    from unnest(%(events)s::bigint[], %(reasons)s::text[]) as u(event_id, reason)
   where r.event_id = u.event_id
  returning r.event_id
)
select distinct e.event_type, p.project
  from held h
  join relevo.notification_events e on e.id = h.event_id
  cross join lateral (select d.project from relevo.notification_deliveries d
                       where d.event_day = e.event_day and d.notification_event_id = e.id limit 100) p;

-- name: prune_repeats
-- Forgets a batch of what was repeated longer than a day ago and is not held, or whose event is gone.
delete from relevo.event_repeats r
 where r.event_id in (select o.event_id from relevo.event_repeats o
                       where (o.since < relevo.now(%(now)s) - interval '1 day' and o.held_at is null)
                          or not exists (select from relevo.notification_events e where e.id = o.event_id)
                       order by o.event_id limit %(limit)s for update skip locked);

-- name: prune_counts
-- Forgets a batch of counts that did not change for 60 days, the oldest first.
delete from relevo.event_counts c
 where c.ctid = any (array(select o.ctid from relevo.event_counts o
                            where o.day < relevo.now(%(now)s)::date - 60
                            order by o.day limit %(limit)s for update skip locked));

-- name: prune_streams
-- Forgets a batch of streams of which nothing is counted or held any more.
delete from relevo.event_streams s
 where s.id in (select o.id from relevo.event_streams o
                 where o.known_since < relevo.now(%(now)s) - interval '60 days'
                   and (select c.stream_id from relevo.event_counts c where c.stream_id >= o.id order by c.stream_id limit 1) is distinct from o.id
                   and not exists (select from relevo.held_events h where h.stream_id = o.id and h.released_at is null)
                 order by o.id limit %(limit)s for update skip locked);

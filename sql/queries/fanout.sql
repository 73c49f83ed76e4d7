-- name: pick_event
-- Locks the next event that is due to fan out, urgent ones first, passing by those another replica is at.
select e.id, e.event_type, e.audience, e.lane, e.event_day, e.fanout_upto, e.fanout_cursor,
       case when e.audience = 'matching' then relevo.event_buckets(e) end as buckets,
       (e.deadline_at <= coalesce(%(now)s::timestamptz, now())) is true as too_late,
       case when e.audience = 'installations'
            then (select count(*) from (select 1 from relevo.event_audience a where a.event_id = e.id
                                        union all
                                        select 1 from relevo.event_owners o
                                          cross join lateral (select 1 from relevo.device_installations i where i.owner = o.owner limit 101) i
                                         where o.event_id = e.id
                                         limit 101) a) end as named,
       date_bin('1 hour', greatest(e.scheduled_at, e.created_at), 'epoch') as due_hour
  from relevo.notification_events e
 where e.state in ('waiting', 'fanning') and e.scheduled_at <= coalesce(%(now)s::timestamptz, now())
   and e.id <> all (%(given_up)s::bigint[])
 order by e.lane desc, e.scheduled_at, e.id
 limit 1
   for update skip locked;

-- name: pick_small_events
-- Locks the events that are due to fan out, have not begun, name few phones, and fell due in the lane and hour of the first of them, which
-- this transaction has locked already; in the same order, but passing by all others.
select e.id, (e.deadline_at <= coalesce(%(now)s::timestamptz, now())) is true as too_late, a.named
  from relevo.notification_events e
  cross join lateral (select count(*)::int as named
                        from (select 1 from relevo.event_audience a where a.event_id = e.id
                              union all
                              select 1 from relevo.event_owners o
                                cross join lateral (select 1 from relevo.device_installations i where i.owner = o.owner limit %(few)s::int + 1) i
                               where o.event_id = e.id
                               limit %(few)s::int + 1) a) a
 where e.state in ('waiting', 'fanning') and e.lane = %(lane)s and e.scheduled_at <= coalesce(%(now)s::timestamptz, now())
   and e.scheduled_at < %(due_hour)s::timestamptz + interval '1 hour'
   and e.audience = 'installations' and e.event_day is null and a.named <= %(few)s::int
   and date_bin('1 hour', greatest(e.scheduled_at, e.created_at), 'epoch') = %(due_hour)s::timestamptz
   and e.id <> all (%(left_out)s::bigint[])
 order by e.lane desc, e.scheduled_at, e.id
 limit %(limit)s
   for update of e skip locked;

-- name: fan_out_events
-- Makes and queues all deliveries of small personal events that this transaction has locked; nothing if today's month is sealed.
select f.created, f.events, f.installations from relevo.fan_out_events_1(%(events)s::bigint[], %(watched)s, %(now)s::timestamptz) f;

-- name: read_next_due
-- Tells in how many seconds the next scheduled event falls due.
select extract(epoch from min(n.scheduled_at) - coalesce(%(now)s::timestamptz, now()))::float8
  from (values ('urgent'), ('bulk')) as l(lane)
  cross join lateral (select e.scheduled_at from relevo.notification_events e
                       where e.state in ('waiting', 'fanning') and e.lane = l.lane and e.scheduled_at > coalesce(%(now)s::timestamptz, now())
                       order by e.scheduled_at limit 1) n;

-- name: begin_fanout
-- Writes an event's day and audience once, the UTC day and the installations registered until now, and sees to its partition.
with begun as (
  update relevo.notification_events e
     set state = 'fanning', fanout_started_at = coalesce(%(now)s::timestamptz, now()),
         event_day = (coalesce(%(now)s::timestamptz, now()) at time zone 'UTC')::date,
         fanout_upto = coalesce((select max(i.seq) from relevo.device_installations i), 0),
         updated_at = coalesce(%(now)s::timestamptz, now())
   where e.id = %(event_id)s
  returning e.event_day, e.fanout_upto
)
select b.event_day, b.fanout_upto, relevo.ensure_partitions(b.event_day, 1) from begun b;

-- name: hold_day_open
-- Keeps the month of a slice from being sealed until the slice is committed, and tells whether it is open.
select cardinality(relevo.hold_open(array[%(day)s::date])) = 1;

-- name: end_sealed_event
-- Ends an event whose month was sealed for the archive before its fan-out was finished.
update relevo.notification_events
   set state = 'cancelled', ended_at = coalesce(%(now)s::timestamptz, now()), swept_at = coalesce(%(now)s::timestamptz, now()),
       end_reason = 'its month was archived before its fan-out was finished', updated_at = coalesce(%(now)s::timestamptz, now())
 where id = %(event_id)s;

-- name: expire_events
-- Ends events whose deadline passed before they fanned out.
update relevo.notification_events
   set state = 'cancelled', ended_at = coalesce(%(now)s::timestamptz, now()), end_reason = 'its deadline passed before it fanned out',
       updated_at = coalesce(%(now)s::timestamptz, now())
 where id = any (%(events)s::bigint[]);

-- name: stop_late_fanout
-- Ends the fan-out of an event whose deadline passed in its midst; what was made of it ends as every other delivery does.
update relevo.notification_events
   set state = 'fanned', fanout_finished_at = coalesce(%(now)s::timestamptz, now()),
       end_reason = 'its deadline passed before its fan-out was finished', updated_at = coalesce(%(now)s::timestamptz, now())
 where id = %(event_id)s;

-- name: bound_matching
-- Finds the sequence number at which a slice of candidates ends; nothing if fewer are left.
select c.seq
  from (select x.seq
          from unnest(%(buckets)s::text[]) as b(bucket)
          cross join lateral (select x.seq from relevo.preference_index x
                               where x.bucket = b.bucket and x.seq > %(after_seq)s and x.seq <= %(upto_seq)s
                               order by x.seq limit %(limit)s) x
         order by x.seq limit %(limit)s) c
 order by c.seq
offset %(limit)s - 1;

-- name: bound_everyone
-- Finds the sequence number at which a slice of all installations ends; nothing if fewer are left.
select i.seq from relevo.device_installations i
 where i.seq > %(after_seq)s and i.seq <= %(upto_seq)s
 order by i.seq
offset %(limit)s - 1
 limit 1;

-- name: bound_installations
-- Finds the sequence number at which a slice of the given installations, or of those of the given owners, ends; nothing if fewer are left.
select i.seq
  from (select i.seq from relevo.event_audience a
          cross join lateral (select i.seq from relevo.device_installations i where i.installation_id = a.installation_id offset 0) i
         where a.event_id = %(event_id)s
        union all
        select i.seq from relevo.event_owners o
          cross join lateral (select i.seq from relevo.device_installations i where i.owner = o.owner offset 0) i
         where o.event_id = %(event_id)s) i
 where i.seq > %(after_seq)s and i.seq <= %(upto_seq)s
 order by i.seq
offset %(limit)s - 1
 limit 1;

-- name: create_deliveries
-- Makes the deliveries of one slice and queues them in chunks of a request's worth, plainly, for slice and cursor commit together, so that
-- none can be there already; counts them and names the first of the phones, if they are watched.
with made as (
  insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, provider, project, lane,
                                              at_most_once, deadline_at, created_at)
  select e.event_day, e.id, t.installation_id, e.event_type, t.provider, relevo.sending_project(t.provider, t.project), e.lane, e.at_most_once,
         e.deadline_at, now()
    from relevo.notification_events e
    cross join relevo.slice_targets(%(event_id)s, %(audience)s, %(buckets)s::text[], %(after_seq)s, %(upto_seq)s) t
   where e.id = %(event_id)s and (e.project is null or t.project = e.project)
     and not exists (select from relevo.event_followers f -- whoever got what this event follows is not told again
                       join relevo.notification_events o on o.id = f.former_event_id
                       join relevo.notification_deliveries d
                         on d.event_day = o.event_day and d.notification_event_id = o.id and d.installation_id = t.installation_id
                      where f.event_id = e.id and d.status in ('sent', 'ok', 'unconfirmed', 'unknown'))
  returning id, installation_id, project, lane, event_day, event_type, created_at
), queued as (
  insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                                 ids, installations)
  select m.project, m.lane, coalesce(%(now)s::timestamptz, now()), m.event_day, %(event_id)s, m.event_type, m.created_at, 0, 0, false,
         array_agg(m.id), array_agg(m.installation_id)
    from (select m.*, (row_number() over (partition by m.project) - 1) / 100 as piece from made m) m
   group by m.project, m.lane, m.event_day, m.event_type, m.created_at, m.piece
)
select (select count(*)::int from made) as created,
       case when %(watched)s > 0 then array(select m.installation_id from made m order by m.installation_id limit %(watched)s) end as installations,
       case when %(watched)s > 0 then array(select distinct m.project from made m) end as projects;

-- name: create_missing_deliveries
-- Makes and queues the deliveries of one slice that are not there yet: after a violation showed that some are.
with made as (
  insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, provider, project, lane,
                                              at_most_once, deadline_at, created_at)
  select e.event_day, e.id, t.installation_id, e.event_type, t.provider, relevo.sending_project(t.provider, t.project), e.lane, e.at_most_once,
         e.deadline_at, now()
    from relevo.notification_events e
    cross join relevo.slice_targets(%(event_id)s, %(audience)s, %(buckets)s::text[], %(after_seq)s, %(upto_seq)s) t
   where e.id = %(event_id)s and (e.project is null or t.project = e.project)
     and not exists (select from relevo.event_followers f -- whoever got what this event follows is not told again
                       join relevo.notification_events o on o.id = f.former_event_id
                       join relevo.notification_deliveries d
                         on d.event_day = o.event_day and d.notification_event_id = o.id and d.installation_id = t.installation_id
                      where f.event_id = e.id and d.status in ('sent', 'ok', 'unconfirmed', 'unknown'))
  on conflict (event_day, notification_event_id, installation_id) do nothing
  returning id, installation_id, project, lane, event_day, event_type, created_at
), queued as (
  insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                                 ids, installations)
  select m.project, m.lane, coalesce(%(now)s::timestamptz, now()), m.event_day, %(event_id)s, m.event_type, m.created_at, 0, 0, false,
         array_agg(m.id), array_agg(m.installation_id)
    from (select m.*, (row_number() over (partition by m.project) - 1) / 100 as piece from made m) m
   group by m.project, m.lane, m.event_day, m.event_type, m.created_at, m.piece
)
select count(*)::int from made;

-- name: count_targets
-- Counts the targets of a slice, where not all of them became new deliveries.
select count(*)::int
  from relevo.notification_events e
  cross join relevo.slice_targets(%(event_id)s, %(audience)s, %(buckets)s::text[], %(after_seq)s, %(upto_seq)s) t
 where e.id = %(event_id)s and (e.project is null or t.project = e.project);

-- name: advance_event
-- Moves an event's cursor with its slice, counts what was made, and closes its fan-out after the last one.
with moved as (
  update relevo.notification_events e
     set fanout_cursor = %(upto_seq)s, targets_selected = e.targets_selected + %(targets)s,
         deliveries_created = e.deliveries_created + %(created)s,
         state = case when %(finished)s then 'fanned' else 'fanning' end,
         fanout_finished_at = case when %(finished)s then coalesce(%(now)s::timestamptz, now()) end,
         updated_at = coalesce(%(now)s::timestamptz, now())
   where e.id = %(event_id)s
  returning e.id
)
insert into relevo.event_progress_deltas (event_id, status, deliveries)
select m.id, 'pending', %(created)s from moved m where %(created)s > 0;

-- name: wake_dispatch
-- Wakes dispatch, if it sleeps.
select relevo.wake('dispatch');

-- name: pick_ended_event
-- Locks an event that was cancelled or completed and may have deliveries left, and that this run has not looked at.
select e.id, e.event_day
  from relevo.notification_events e
 where e.ended_at is not null and e.swept_at is null and e.updated_at < %(run_started_at)s
 order by e.updated_at, e.id
 limit 1
   for update skip locked;

-- name: cancel_deliveries
-- Ends some chunks of an ended event's deliveries, and counts them off; what is claimed is ended by its holder.
with taken as materialized (
  delete from relevo.due_chunks q
   where q.id = any (array(select o.id from relevo.due_chunks o where o.event_id = %(event_id)s
                            order by o.id limit greatest(1, %(limit)s / 100) for update skip locked))
  returning q.event_day, q.ids
), open as materialized (
  select d.event_day, d.id, d.status
    from (select t.event_day, u.id from taken t cross join unnest(t.ids) as u(id) order by 1, 2) k
    cross join lateral (select d.event_day, d.id, d.status from relevo.notification_deliveries d
                         where d.event_day = k.event_day and d.id = k.id for no key update) d
), ended as (
  update relevo.notification_deliveries d
     set status = 'cancelled', completed_at = coalesce(%(now)s::timestamptz, now()), updated_at = coalesce(%(now)s::timestamptz, now())
    from open o
   where d.event_day = o.event_day and d.id = o.id
  returning o.status
), progress as (
  insert into relevo.event_progress_deltas (event_id, status, deliveries)
  select %(event_id)s, s.status, s.n
    from (select e.status, -count(*)::int as n from ended e group by e.status
          union all
          select 'cancelled', count(*)::int from ended having count(*) > 0) s
)
select (select count(*)::int from ended), (select count(*)::int from taken);

-- name: mark_swept
-- Notes whether nothing open is left of an ended event; if something is, the event goes to the end of the line.
update relevo.notification_events e
   set updated_at = clock_timestamp(),
       swept_at = case when not exists (select from relevo.due_chunks q where q.event_id = %(event_id)s)
                        and not exists (select from relevo.claims c where %(event_id)s = any (c.events))
         then coalesce(%(now)s::timestamptz, now()) end
 where e.id = %(event_id)s
returning e.swept_at is not null;

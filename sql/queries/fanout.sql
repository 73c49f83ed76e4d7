-- name: fan_out_next
-- Locks the next event to fan out, urgent ones first, and fans it out as far as that needs no closer check: together with others, or one slice. It
-- skips events that another replica holds, and takes none once fan-out is paused.
select f.id, f.project, f.audience, f.lane, f.event_day, f.too_late, f.named, f.due_hour, f.how, f.fanned, f.late, f.events, f.installations,
       f.is_last, f.targets, f.created, f.projects, f.counted, f.in_hour, f.busiest_day, f.held
  from relevo.fan_out_next(
    after_project => %(after_project)s, given_up => %(given_up)s::bigint[], apart => %(apart)s::bigint[], aside => %(aside)s::bigint[],
    few => %(few)s::int, most_events => %(most_events)s::int, most => %(most)s::int, brake => %(brake)s, enough => %(enough)s::int,
    at_once => %(at_once)s, unseen => false, given_at => %(now)s::timestamptz, since => %(since)s::timestamptz,
    due_since => %(due_since)s::timestamptz) f;

-- name: find_first_turn
-- Returns bounds for the next looks: no event that is to be fanned out has its turn before the first or is scheduled before the second. Both lie
-- two seconds back at least, for what is enqueued now and committed soon. An event without texts has its turn once it gets them.
with first as materialized (
  select f.place, f.scheduled_at, case when f.turn_at is null or f.arguments is not null and f.texts is null then f.scheduled_at else f.turn_at end as turn
    from (values ('urgent'), ('bulk')) as l(lane)
    cross join lateral (select row_number() over () as place, e.scheduled_at, e.turn_at, e.arguments, e.texts
                          from (select n.scheduled_at, n.turn_at, n.arguments, n.texts from relevo.notification_events n
                                 where n.state in ('waiting', 'fanning') and n.lane = l.lane
                                 order by n.scheduled_at, n.id limit 100) e) f
)
select least(now() - interval '2 seconds', min(f.turn), min(f.scheduled_at) filter (where f.place = 100)),
       least(now() - interval '2 seconds', min(f.scheduled_at))
  from first f;

-- name: find_first_ended
-- Returns a bound for the next looks: no ended event of which something may be left was updated before it.
select least(now() - interval '2 seconds', (select e.updated_at from relevo.notification_events e
                                             where e.ended_at is not null and e.swept_at is null order by e.updated_at, e.id limit 1));

-- name: pick_small_events
-- Locks small personal events that are fanned out together, to find out which those are.
select p.id from relevo.pick_small_events(%(lane)s, %(project)s, %(due_hour)s::timestamptz, %(few)s::int, %(most_events)s::int,
                                            %(left_out)s::bigint[], relevo.now(%(now)s), null) p;

-- name: fan_out_slice
-- Makes and queues the deliveries of a slice of an event that this transaction has locked; nothing if its month is sealed.
select f.is_last, f.targets, f.created, f.projects, f.counted, f.in_hour, f.busiest_day, f.held
  from relevo.notification_events e
  cross join lateral relevo.fan_out_slice(e, %(most)s::int, %(watched)s, true, %(step_aside)s, %(enough)s::int, %(now)s::timestamptz) f
 where e.id = %(event_id)s::bigint;

-- name: look_beside
-- Returns whether held events are past their deadline, and whether ended events have open deliveries that this run has not checked since a moment.
-- Returns also that moment, and in how many seconds the next scheduled event is due, a batch closes or a failed fan-out is retried. No ended event
-- was updated before `ended_since`.
select exists (select from relevo.notification_events e where e.state = 'held' and e.deadline_at <= relevo.now(%(now)s)),
       exists (select from relevo.notification_events e
                where e.ended_at is not null and e.swept_at is null and e.updated_at < coalesce(%(looks_since)s::timestamptz, now())
                  and e.updated_at >= coalesce(%(ended_since)s::timestamptz, '-infinity')),
       (select extract(epoch from min(d.due_at) - relevo.now(%(now)s))::float8
          from (select n.due_at
                  from (values ('urgent'), ('bulk')) as l(lane)
                  cross join lateral (select e.scheduled_at as due_at from relevo.notification_events e
                                       where e.state in ('waiting', 'fanning') and e.lane = l.lane
                                         and e.scheduled_at > relevo.now(%(now)s)
                                       order by e.scheduled_at limit 1) n
                union all
                select min(b.closes_at) from relevo.batches b where b.closed_at is null
                union all
                select min(e.fanout_retry_at) from relevo.notification_events e
                 where e.fanout_failures is not null and e.state in ('waiting', 'fanning')
                   and e.fanout_retry_at > relevo.now(%(now)s)) d),
       coalesce(%(looks_since)s::timestamptz, now());

-- name: list_held_late
-- Lists a batch of held events whose deadline passed, but for those left out.
select e.id from relevo.notification_events e
 where e.state = 'held' and e.deadline_at <= relevo.now(%(now)s) and e.id <> all (%(left_out)s::bigint[])
 order by e.deadline_at, e.id
 limit %(limit)s;

-- name: close_batches
-- Closes batches whose time has come, or one of them, and lets what is left of each be told by an event.
select c.closed, c.told from relevo.close_batches(%(most)s::int, %(alone)s::bigint, %(now)s::timestamptz) c;

-- name: list_due_batches
-- Lists batches whose time has come, to close them one by one.
select b.id from relevo.batches b where b.closed_at is null and b.closes_at <= relevo.now(%(now)s) order by b.closes_at, b.id limit %(most)s::int;

-- name: put_off_batch
-- Lets a batch that could not be closed wait for another minute.
update relevo.batches b set closes_at = relevo.now(%(now)s) + interval '1 minute' where b.id = %(batch)s::bigint and b.closed_at is null;

-- name: note_failed_fanout
-- Writes down that an event could not be fanned out, what was said, and when it is tried again, until when it is passed by.
update relevo.notification_events e
   set fanout_failures = r.failures, fanout_error = coalesce(nullif(left(%(error)s, 300), ''), 'no reason was given'), fanout_retry_at = r.at,
       turn_at = r.at, updated_at = relevo.now(%(now)s)
  from (select n.id, coalesce(n.fanout_failures, 0) + 1 as failures,
               relevo.now(%(now)s)
                 + relevo.retry_delay(coalesce(n.fanout_failures, 0) + 1, %(base_ms)s, %(max_ms)s, 0, 0, 0) as at
          from relevo.notification_events n
         where n.id = %(event_id)s and n.state in ('waiting', 'fanning')
           for update) r
 where e.id = r.id;

-- name: sweep_later
-- Puts an ended event whose deliveries could not be ended at the end of the line.
update relevo.notification_events set updated_at = clock_timestamp() where id = %(event_id)s;

-- name: lock_event
-- Locks an event that was found to be one too many, unless somebody else is at it or its fan-out has begun.
select e.id from relevo.notification_events e
 where e.id = %(event_id)s and e.state = 'waiting' and e.event_day is null
   for update skip locked;

-- name: end_sealed_event
-- Ends an event whose month was sealed for the archive before its fan-out was finished.
update relevo.notification_events
   set state = 'cancelled', ended_at = relevo.now(%(now)s), swept_at = relevo.now(%(now)s),
       end_reason = 'its month was archived before its fan-out was finished', updated_at = relevo.now(%(now)s)
 where id = %(event_id)s;

-- name: expire_events
-- Ends events whose deadline passed before they fanned out.
select relevo.expire_events(%(events)s::bigint[], relevo.now(%(now)s));

-- name: stop_late_fanout
-- Ends the fan-out of an event whose deadline passed in its midst; what was made of it ends as every other delivery does.
update relevo.notification_events
   set state = 'fanned', fanout_finished_at = relevo.now(%(now)s),
       end_reason = 'its deadline passed before its fan-out was finished', updated_at = relevo.now(%(now)s)
 where id = %(event_id)s;

-- name: pick_ended_event
-- Locks an event that was cancelled or completed and may have deliveries left, and that this run has not looked at. None was updated before
-- `ended_since`.
select e.id, e.event_day
  from relevo.notification_events e
 where e.ended_at is not null and e.swept_at is null and e.updated_at < %(looks_since)s
   and e.updated_at >= coalesce(%(ended_since)s::timestamptz, '-infinity')
 order by e.updated_at, e.id
 limit 1
   for update skip locked;

-- name: cancel_deliveries
-- Ends some chunks of an ended event's deliveries, and counts them off; what is claimed is ended by its holder, and what a late ticket says
-- to have been sent by whoever claims it. Deliveries that wait beside those of other events are taken out of their chunks.
with taken as materialized (
  delete from relevo.due_chunks q
   where q.id = any (array(select o.id from relevo.due_chunks o
                            where o.event_id = %(event_id)s
                              and not exists (select from relevo.notification_events e where e.id = %(event_id)s and e.queued_in is not null)
                              and not ((select exists (select from relevo.late_tickets)) and exists (
                                select from relevo.late_tickets l join relevo.notification_deliveries d on d.event_day = l.event_day and d.id = l.delivery_id
                                 where l.event_day = o.event_day and l.delivery_id = any (o.ids) and l.ticket_id is distinct from d.provider_ticket_id))
                            order by o.id limit greatest(1, %(limit)s / 100) for update skip locked))
  returning q.event_day, q.ids
), taken_apart as materialized (
  select t.event_day, t.id
    from relevo.notification_events e
    cross join lateral relevo.take_from_queue(array[e.id], array(
      select d.id from relevo.notification_deliveries d
       where d.event_day = e.event_day and d.notification_event_id = e.id
         and not exists (select from relevo.late_tickets l where l.event_day = d.event_day and l.delivery_id = d.id
                           and l.ticket_id is distinct from d.provider_ticket_id))) t
   where e.id = %(event_id)s and e.queued_in is not null
), open as materialized (
  select d.event_day, d.id, d.status
    from (select t.event_day, u.id from taken t cross join unnest(t.ids) as u(id)
          union all
          select a.event_day, a.id from taken_apart a order by 1, 2) k
    cross join lateral (select d.event_day, d.id, d.status from relevo.notification_deliveries d
                         where d.event_day = k.event_day and d.id = k.id for no key update) d
), ended as (
  update relevo.notification_deliveries d
     set status = 'cancelled', completed_at = relevo.now(%(now)s), updated_at = relevo.now(%(now)s)
    from open o
   where d.event_day = any (array[o.event_day]) and d.id = o.id
  returning o.status
), progress as materialized (
  select relevo.move_counts(array_agg(%(event_id)s::bigint), array_agg(e.status), array_agg('cancelled'::text), array_agg(e.n))
    from (select e.status, count(*)::int as n from ended e group by e.status) e
)
select (select count(*)::int from ended), (select count(*)::int from taken) where (select count(*) from progress) > 0;

-- name: mark_swept
-- Notes whether nothing open is left of an ended event; if something is, the event goes to the end of the line.
update relevo.notification_events e
   set updated_at = clock_timestamp(),
       swept_at = case when not exists (select from relevo.chunks_of(e))
                        and not exists (select from relevo.claims c where %(event_id)s = any (c.events))
         then relevo.now(%(now)s) end
 where e.id = %(event_id)s
returning e.swept_at is not null;

-- name: list_events
-- Lists events, newest first, behind a given one, news only if asked for, by type and state if asked, with how many deliveries are in which status.
select e.id, e.event_type, e.event_key, e.project, e.state, e.title, e.body,
       case when e.audience = 'installations' and exists (select from relevo.event_owners o where o.event_id = e.id) then 'owners' else e.audience end as audience,
       e.lane, e.created_at, e.scheduled_at, e.deadline_at,
       e.targets_selected, e.deliveries_created, e.end_reason, coalesce(p.deliveries, '{}') as deliveries
  from (select e.*
          from relevo.notification_events e
         where (%(event_type)s::text is null and e.event_type <> 'relevo.news' or e.event_type = %(event_type)s)
           and (%(state)s::text is null or e.state = %(state)s)
           and (%(before)s::bigint is null or e.id < %(before)s)
         order by e.id desc
         limit %(limit)s) e
  left join lateral (select jsonb_object_agg(s.status, s.n) as deliveries
                       from (select x.status, sum(x.deliveries) as n
                               from (select g.status, g.deliveries from relevo.event_progress g where g.event_id = e.id
                                     union all
                                     select d.status, d.deliveries from relevo.event_progress_deltas d where d.event_id = e.id) x
                              group by x.status having sum(x.deliveries) <> 0) s) p on true
 order by e.id desc;

-- name: list_recent_events
-- Lists events, newest first, that fit, news only if asked for, out of so many that are looked at, with how far they are; and where it stopped looking.
with looked as materialized (
  select e.id, e.event_type, e.state, e.project
    from relevo.notification_events e
   where e.id < coalesce(%(before)s::bigint, 9223372036854775807)
   order by e.id desc
   limit %(look)s
), fitting as materialized (
  select l.id
    from looked l
   where (%(event_type)s::text is null and l.event_type <> 'relevo.news' or l.event_type = %(event_type)s)
     and (%(state)s::text is null or l.state = %(state)s)
     and (%(project)s::text is null or l.project = %(project)s)
   order by l.id desc
   limit %(limit)s
), ends as materialized (
  select min(l.id) as last_id, count(*)::int as looked from looked l
)
select e.id, e.event_type, e.event_key, e.state, left(e.title, 200) as title, left(e.body, 200) as body, e.audience, e.project, e.created_at, e.scheduled_at,
       e.deliveries_created, coalesce(p.deliveries, '{}') as deliveries, ends.last_id, ends.looked
  from ends
  left join fitting f on true
  left join lateral (select e.* from relevo.notification_events e where e.id = f.id) e on true
  left join lateral (select jsonb_object_agg(s.status, s.n) as deliveries
                       from (select x.status, sum(x.deliveries) as n
                               from (select g.status, g.deliveries from relevo.event_progress g where g.event_id = f.id
                                     union all
                                     select d.status, d.deliveries from relevo.event_progress_deltas d where d.event_id = f.id) x
                              group by x.status having sum(x.deliveries) <> 0) s) p on true
 order by e.id desc;

-- name: list_event_types
-- Lists the types of events there are but for news, along their index.
with recursive kind as (
  (select e.event_type, 1 as n from relevo.notification_events e order by e.event_type limit 1)
  union all
  select f.event_type, k.n + 1
    from kind k
    cross join lateral (select e.event_type from relevo.notification_events e
                         where e.event_type > k.event_type order by e.event_type limit 1) f
   where k.n < %(limit)s
)
select k.event_type from kind k where k.event_type <> 'relevo.news';

-- name: read_event
-- Reads all that is known of one event beside its deliveries: what it is about, where it came from, who is meant, what held it.
select now() as now, e.id, e.event_type, e.event_key, e.state, e.title, e.body, e.audience, e.project, e.category, e.lane, e.at_most_once,
       e.created_at, e.scheduled_at, e.deadline_at, e.event_day, e.fanout_started_at, e.fanout_finished_at, e.targets_selected, e.deliveries_created,
       e.first_sent_at, e.ended_at, e.end_reason, e.swept_at, e.match_topics, e.match_where, e.updated_at, e.fanout_failures, e.fanout_error, e.fanout_retry_at,
       l.external_id, left(l.nombre, 300) as nombre, l.organismo, l.publicada_at, r.source, r.claimed_at as first_seen_at,
       h.held_at, h.reason as held_reason, h.released_at, t.held_at as repeats_held_at, t.reason as repeats_reason,
       e.collapse, substr(e.traceparent, 4, 32) as trace_id, relevo.reactions_of(e) as reactions,
       (select cardinality(b.events) from relevo.batches b where b.id = e.batch_id) as tells,
       (select min(s.closes_at) from relevo.digest_items x join relevo.digest_slots s on s.id = x.slot_id
         where x.event_id = e.id) as digest_closes_at,
       (select jsonb_build_object('until', min(b.closes_at) filter (where b.closed_at is null), 'events', (array_agg(b.event_id order by b.event_id) filter (where b.event_id is not null))[:5])
          from (select 'o:' || o.owner as subject from relevo.event_owners o where o.event_id = e.id
                 union all
                select 'i:' || a.installation_id from relevo.event_audience a where a.event_id = e.id limit 100) s
          join relevo.batches b on b.subject = s.subject and b.event_type = e.event_type and e.id = any (b.events)) as batches,
       (select jsonb_build_object('count', count(*), 'at', min(x.at)) from (select s.at from relevo.silent_pushes s where s.event_id = e.id limit %(most)s) x) as silent,
       (select f.former_event_id from relevo.event_followers f where f.event_id = e.id order by f.former_event_id limit 1) as former_event_id,
       (select count(*)::int from (select from relevo.event_audience a where a.event_id = e.id limit %(most)s) x) as named,
       array(select o.owner from relevo.event_owners o where o.event_id = e.id order by o.owner limit 10) as owners
  from relevo.notification_events e
  left join relevo.licitaciones l on l.id = e.licitacion_id
  left join relevo.licitacion_registry r on r.namespace = l.namespace and r.external_id = l.external_id
  left join relevo.held_events h on h.event_id = e.id
  left join relevo.event_repeats t on t.event_id = e.id
 where e.id = %(event_id)s;

-- name: sum_event_sample
-- Returns for a bounded number of an event's deliveries when the last was tried and ended, and the highest number of attempts. Returns also how
-- many receipts that came after the last attempt reported an error, and how many deliveries caps, batches and quiet hours held back.
select count(*)::int as looked_at, max(x.last_attempt_at) as last_attempt_at, max(x.completed_at) as last_completed_at,
       coalesce(max(x.attempt_count), 0)::int as most_attempts, count(*) filter (where x.receipt_failed)::int as receipts_failed,
       max(coalesce(x.completed_at, x.updated_at)) filter (where x.receipt_failed) as receipt_failed_at,
       count(*) filter (where x.superseded)::int as superseded, max(x.completed_at) filter (where x.superseded) as superseded_at,
       min(x.opened_at) as first_opened_at,
       count(*) filter (where x.held = 'capped')::int as capped, max(x.completed_at) filter (where x.held = 'capped') as capped_at,
       min(x.why) filter (where x.held = 'capped') as capped_why,
       count(*) filter (where x.held = 'in_digest')::int as to_digest, max(x.completed_at) filter (where x.held = 'in_digest') as to_digest_at,
       count(*) filter (where x.held = 'batched')::int as batched, max(x.completed_at) filter (where x.held = 'batched') as batched_at,
       count(*) filter (where x.held = 'quiet_hours' and x.completed_at is not null)::int as quiet_expired,
       max(x.completed_at) filter (where x.held = 'quiet_hours') as quiet_expired_at
  from (select d.last_attempt_at, d.completed_at, d.updated_at, d.attempt_count, d.last_error_code = 'superseded' as superseded, d.opened_at,
               case when d.last_error_code in ('capped', 'in_digest', 'batched', 'quiet_hours') then d.last_error_code end as held, d.last_error_message as why,
               d.status in ('retryable', 'failed', 'invalid', 'expired') and d.provider_receipt_id = d.provider_ticket_id
               and d.last_error_code is not null and coalesce(d.completed_at, d.updated_at) > d.last_attempt_at as receipt_failed
          from relevo.notification_deliveries d
         where d.event_day = %(event_day)s and d.notification_event_id = %(event_id)s
         order by d.installation_id
         limit %(most)s) x;

-- name: list_event_incidents
-- Lists what happened to the sending of an event's projects while it was sent, out of a bounded sample of its deliveries; that dead letters
-- were sent anew, if some were its own. A breaker that opened, and had not closed since it did before, is a probe that failed.
select i.at, case when i.what = 'breaker_opened' and (select b.what from relevo.project_incidents b
                                                      where b.project = i.project and b.at < i.at and b.what in ('breaker_opened', 'breaker_closed')
                                                      order by b.at desc limit 1) = 'breaker_opened'
                  then 'probe_failed' else i.what end as what, i.project, i.detail
  from relevo.notification_events e
  join relevo.project_incidents i on i.at >= e.fanout_started_at
 where e.id = %(event_id)s
   and i.project in (select x.project from (select d.project from relevo.notification_deliveries d
                                             where d.event_day = e.event_day and d.notification_event_id = e.id limit 1000) x)
   and (i.what <> 'redriven' or e.id = any (i.events))
   and i.at <= (select max(case when x.completed_at is null and x.status <> 'sent' then now() else x.last_attempt_at + interval '1 minute' end)
                  from (select d.status, d.completed_at, d.last_attempt_at from relevo.notification_deliveries d
                         where d.event_day = e.event_day and d.notification_event_id = e.id limit 10000) x)
 order by i.at
 limit 50;

-- name: list_event_errors
-- Lists the errors of an event's deliveries, most frequent first. It reads a bounded number of the event's dead letters, of its retries, and of all
-- other deliveries.
with seen as (
  select d.id, d.status, d.last_error_code, d.last_error_message
    from (select l.event_day, l.delivery_id from relevo.dead_letters l where l.event_id = %(event_id)s order by l.delivery_id limit 1000) l
    cross join lateral (select d.* from relevo.notification_deliveries d where d.event_day = l.event_day and d.id = l.delivery_id offset 0) d
  union
  select d.id, d.status, d.last_error_code, d.last_error_message
    from (select q.event_day, q.ids from relevo.due_chunks q where q.event_id = %(event_id)s and q.had_error limit 50) q
    cross join unnest(q.ids) as u(id)
    cross join lateral (select d.* from relevo.notification_deliveries d where d.event_day = q.event_day and d.id = u.id offset 0) d
  union
  select d.id, d.status, d.last_error_code, d.last_error_message
    from (select d.* from relevo.notification_deliveries d
           where d.event_day = %(event_day)s and d.notification_event_id = %(event_id)s
           order by d.installation_id
           limit %(most)s) d
)
select x.status, x.last_error_code, count(*)::int as deliveries, min(x.last_error_message) as example,
       case when x.status in ('pending', 'retryable')
            then (select min(q.due_at) from relevo.due_chunks q where q.event_id = %(event_id)s and q.had_error) end as next_attempt_at
  from seen x
 where x.last_error_code is not null
 group by x.status, x.last_error_code
 order by count(*) desc
 limit 10;

-- name: list_event_waits
-- Returns why the open deliveries of an event wait, and until when, per project and by whether quiet hours are the reason. For quiet hours it
-- returns the zone of the first delivery. It reads a bounded number of the event's chunks and claims.
select x.project, x.lane, sum(x.deliveries)::int as deliveries, min(x.due_at) as next_attempt_at, bool_or(x.claimed) as claimed,
       p.breaker, p.breaker_reason, p.probe_at, p.rest_until, x.is_quiet,
       case when x.is_quiet then (select relevo.zone_of(i.timezone, i.quiet, i.owner_quiet, i.project) from relevo.device_installations i
                                   where i.installation_id = (array_agg(x.phone order by x.due_at))[1]) end as quiet_zone,
       x.lane = 'bulk' and exists (select from relevo.event_repeats r where r.event_id = %(event_id)s and r.held_at is not null) as repeats_held
  from (select q.project, q.lane, q.due_at, case when q.events is null then cardinality(q.ids) else cardinality(array_positions(q.events, %(event_id)s)) end as deliveries,
               false as claimed, q.installations[coalesce(array_position(q.events, %(event_id)s), 1)] as phone, q.is_quiet
          from (select q.*, relevo.waits_for_quiet(q) as is_quiet
                  from relevo.notification_events e cross join lateral relevo.chunks_of(e) q where e.id = %(event_id)s limit 10000) q
        union all
        select d.project, d.lane, c.due_at, 1, true, d.installation_id, false
          from (select * from relevo.claims c where %(event_id)s = any (c.events) limit 100) c
          cross join unnest(c.days, c.ids) as u(event_day, id)
          join relevo.notification_deliveries d on d.event_day = u.event_day and d.id = u.id and d.notification_event_id = %(event_id)s) x
  left join relevo.projects p on p.project = x.project
 group by x.project, x.lane, p.project, x.is_quiet
 order by x.project, x.lane, x.is_quiet
 limit 50;

-- name: list_event_requests
-- Lists the requests in which an event's deliveries were sent, oldest first, from a place on, and returns where it stopped after a bounded number.
-- Each row has how many of the event's deliveries the request held, and how many of those are known to be accepted or not. Once a delivery was sent
-- anew, only its last ticket is kept, and of the requests before it the error. The deliveries of an event with many (by_key) are read one by one,
-- those of other events together.
with known as materialized (
  select d.id, d.provider_ticket_id is not null as has_ticket, d.status, d.last_attempt_at
    from relevo.notification_deliveries d
   where not %(by_key)s and d.event_day = %(event_day)s and d.notification_event_id = %(event_id)s
   order by d.installation_id
   limit %(most)s
), looked as materialized (
  select r.id, r.project, r.journalled_at, r.answered_at, r.outcome, r.worker_id, r.days, r.ids
    from relevo.push_requests r
   where r.request_day between (%(since)s::timestamptz at time zone 'UTC')::date and (%(since)s::timestamptz at time zone 'UTC')::date + 1
     and (r.journalled_at, r.id) > (%(since)s::timestamptz, %(after)s::uuid) and r.journalled_at <= %(until)s
   order by r.journalled_at, r.id
   limit %(look_at)s
), pushes as materialized (
  select l.id as request_id, l.journalled_at, l.answered_at, l.outcome, u.id
    from looked l cross join unnest(l.days, l.ids) as u(event_day, id)
   where u.event_day = %(event_day)s
), own as (
  select p.*, k.has_ticket, k.status, k.last_attempt_at from pushes p join known k on k.id = p.id
  union all
  select p.*, d.has_ticket, d.status, d.last_attempt_at
    from pushes p
    cross join lateral (select d.notification_event_id, d.provider_ticket_id is not null as has_ticket, d.status, d.last_attempt_at
                          from relevo.notification_deliveries d
                         where %(by_key)s and d.event_day = %(event_day)s and d.id = p.id offset 0) d
   where d.notification_event_id = %(event_id)s
), last as ( -- a ticket is of the last request, or of the only one that was answered; of an earlier one nothing is known any more
  select o.*, o.last_attempt_at <= coalesce(o.answered_at, o.journalled_at) + interval '5 minutes'
              and (count(*) filter (where coalesce(o.outcome, 'answered') = 'answered') over (partition by o.id) = 1
                   or o.status in ('sent', 'ok', 'unconfirmed')
                      and row_number() over (partition by o.id order by o.journalled_at desc, o.request_id) = 1) as has_its_ticket,
         lead(o.journalled_at, 1, 'infinity') over (partition by o.id order by o.journalled_at, o.request_id desc) as next_at
    from own o
), told as ( -- of one that was sent anew: refused then, or taken and refused by its receipt, before the next
  select x.*, case when x.has_ticket and x.has_its_ticket then 'taken' when not x.has_ticket then 'refused' else
           (select case when bool_or(f.request_id = x.request_id) then 'refused'
                        when bool_or(f.found_by = 'receipt' and f.at > x.journalled_at and f.at <= x.next_at) then 'taken' end
              from relevo.failed_attempts f where f.event_day = %(event_day)s and f.delivery_id = x.id) end as became
    from last x
), held as materialized (
  select x.request_id, min(x.id) as first_id, count(*)::int as of_event, count(*) filter (where x.became = 'taken')::int as taken,
         count(*) filter (where x.became = 'refused')::int as refused
    from told x group by x.request_id
)
select l.id, l.project, l.journalled_at, l.answered_at, l.outcome, l.worker_id, cardinality(l.ids) as pushes, h.of_event, h.taken, h.refused,
       ends.looked_at, ends.found, ends.last_at, ends.last_id, -- of a request that failed as a whole, what was said of one of them was said of all
       (select f.error_code from relevo.failed_attempts f
         where l.outcome <> 'answered' and f.event_day = %(event_day)s and f.delivery_id = h.first_id and f.request_id = l.id limit 1) as said_code
  from (select count(*)::int as looked_at, (select count(*)::int from held) as found, max(l.journalled_at) as last_at,
               (select l.id from looked l order by l.journalled_at desc, l.id desc limit 1) as last_id
          from looked l) ends
  left join (held h join looked l on l.id = h.request_id) on true
 order by l.journalled_at, l.id
 limit %(limit)s;

-- name: count_event_claimed
-- Counts what of an event is being sent right now, out of a bounded number of claims.
select count(*)::int as claimed
  from (select * from relevo.claims c where %(event_id)s = any (c.events) limit 100) c
  cross join unnest(c.days, c.ids) as u(event_day, id)
  join relevo.notification_deliveries d on d.event_day = u.event_day and d.id = u.id and d.notification_event_id = %(event_id)s;

-- name: find_event_spans
-- Returns between which instants an event waited for each cycle on its way, by a bounded number of its deliveries; what has no end lasts until now.
select s.cycle, s.source, s.since, coalesce(s.until, now()) as until
  from relevo.notification_events e
  left join relevo.licitaciones l on l.id = e.licitacion_id
  left join relevo.licitacion_registry r on r.namespace = l.namespace and r.external_id = l.external_id
  cross join lateral (select max(x.last_attempt_at) as last_attempt_at, max(x.completed_at) as last_completed_at,
                             bool_or(x.status in ('pending', 'retryable')) as is_due, bool_or(x.status = 'sent') as is_awaited
                        from (select d.status, d.last_attempt_at, d.completed_at from relevo.notification_deliveries d
                               where d.event_day = e.event_day and d.notification_event_id = e.id
                               order by d.event_day, d.notification_event_id, d.installation_id -- by chance, so that the last of many is near
                               limit %(most)s) x) x
  cross join lateral (values
    ('ingest', r.source, l.publicada_at, r.claimed_at),
    ('fanout', '', greatest(e.created_at, e.scheduled_at), coalesce(e.fanout_finished_at, e.ended_at)),
    ('dispatch', '', e.fanout_started_at, case when not x.is_due then coalesce(x.last_attempt_at, x.last_completed_at) end),
    ('receipt', '', e.first_sent_at, case when not x.is_awaited then x.last_completed_at end)) as s(cycle, source, since, until)
 where e.id = %(event_id)s and s.since is not null and (s.cycle <> 'dispatch' or e.deliveries_created > 0);

-- name: find_event
-- Finds an event by its number, archived ones included.
select e.id, e.event_type, e.event_key, left(e.title, 200) as title, false as archived from relevo.notification_events e where e.id = %(event_id)s
union all
select k.event_id, k.event_type, k.event_key, '', true from relevo.event_keys k where k.event_id = %(event_id)s;

-- name: find_events_by_key
-- Finds events by their key alone, type by type along their index, archived and hidden ones included.
with recursive kind as (
  (select e.event_type from relevo.notification_events e order by e.event_type limit 1)
  union all
  select n.event_type
    from kind k
    cross join lateral (select e.event_type from relevo.notification_events e
                         where e.event_type > k.event_type order by e.event_type limit 1) n
), kept as (
  (select e.event_type from relevo.event_keys e order by e.event_type limit 1)
  union all
  select n.event_type
    from kept k
    cross join lateral (select e.event_type from relevo.event_keys e where e.event_type > k.event_type order by e.event_type limit 1) n
)
(select e.id, e.event_type, e.event_key, left(e.title, 200) as title, false as archived
   from (select k.event_type from kind k limit 1000) k
  cross join lateral (values (%(key)s), (relevo.hidden_key(k.event_type, %(key)s))) as g(key) -- key by key
   join relevo.notification_events e on e.event_type = k.event_type and e.event_key = g.key
  limit %(limit)s)
union all
(select e.event_id, e.event_type, e.event_key, '', true
   from (select k.event_type from kept k limit 1000) k
  cross join lateral (values (%(key)s), (relevo.hidden_key(k.event_type, %(key)s))) as g(key)
   join relevo.event_keys e on e.event_type = k.event_type and e.event_key = g.key
  limit %(limit)s);

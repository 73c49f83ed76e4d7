-- name: list_workers
-- Lists the workers that live, and those that ended within the last day.
select w.worker_id, w.role, w.cycles, w.version, w.hostname, w.pid, w.wakeups, w.started_at, w.last_seen_at, w.hung, w.http, w.rests_because, w.unusable, w.unreachable, w.unwritable, w.clock_ahead_s,
       extract(epoch from now() - w.last_seen_at)::float8 as silent_s,
       relevo.is_late(w) as is_late,
       case when w.role = 'tick' then (select s.round_gap_s from relevo.cycle_state s where s.cycle = 'reaper' and s.source = '') end as ticks_every_s,
       case when w.stopped_at is not null then 'stopped'
            when w.lost_at is not null then 'lost'
            when not relevo.is_alive(w) then 'silent'
            when w.stopping_at is not null then 'stopping'
            else 'alive' end as state
  from relevo.workers w
 where coalesce(w.stopped_at, w.lost_at) is null or coalesce(w.stopped_at, w.lost_at) > now() - interval '1 day'
 order by (coalesce(w.stopped_at, w.lost_at) is null) desc, w.started_at desc
 limit %(limit)s;

-- name: find_scheduler
-- Finds a living worker that was seen in time and runs cycles by schedule, or a tick of cron. The tick counts if it ran within the last quarter of
-- an hour, or within six times the interval between two ticks.
select w.worker_id
  from relevo.workers w
 where w.cycles <> '{}'
   and (w.role = 'run' and relevo.is_alive(w) and not relevo.is_late(w) and w.stopping_at is null
        or w.role = 'tick'
           and w.last_seen_at > now() - greatest(900, 6 * (select s.round_gap_s from relevo.cycle_state s where s.cycle = 'reaper' and s.source = ''))
                                        * interval '1 second')
 limit 1;

-- name: list_projects
-- Lists the projects of pushes with what holds them up, since when in all, failed probes included, and how they fared in the last minutes.
select p.project, p.rate_share, p.rest_until, p.breaker, p.breaker_reason, p.probe_at, p.trips, p.failures, p.filled_at as asked_at,
       case when p.breaker <> 'closed' then coalesce(opened.at, p.breaker_since) end as breaker_since, p.pruning_stopped_at,
       coalesce((select sum(c.connections)::int from relevo.push_connections c where c.project = p.project and c.leased_until > now()), 0) as connections,
       t.sent, t.answers, t.unregistered
  from relevo.projects p
  left join lateral (select min(i.at) as at
                       from relevo.project_incidents i
                      where p.breaker <> 'closed' and i.project = p.project and i.what = 'breaker_opened'
                        and i.at > coalesce((select max(c.at) from relevo.project_incidents c
                                              where c.project = p.project and c.what = 'breaker_closed'), '-infinity')) opened on true
  cross join lateral (select coalesce(sum(t.sent), 0)::bigint as sent, coalesce(sum(t.answers), 0)::bigint as answers,
                             coalesce(sum(t.unregistered), 0)::bigint as unregistered
                        from relevo.push_tallies t where t.project = p.project and t.at > now() - interval '15 minutes') t
 where not relevo.is_news_project(p.project)
 order by p.project
 limit %(limit)s;

-- name: list_due
-- Lists what is due now per project and lane, news left out: how much, up to a bound, and since when the oldest.
with recursive lane as (
  (select q.project, q.lane from relevo.due_chunks q order by q.project, q.lane limit 1)
  union all
  select n.project, n.lane
    from lane l
    cross join lateral (select q.project, q.lane from relevo.due_chunks q
                         where (q.project, q.lane) > (l.project, l.lane)
                         order by q.project, q.lane limit 1) n
)
select l.project, l.lane, x.due, extract(epoch from now() - x.oldest_at)::float8 as oldest_s
  from lane l
  cross join lateral (select least(coalesce(sum(y.deliveries), 0), %(most)s)::int as due, min(y.due_at) as oldest_at
                        from (select q.due_at, cardinality(q.ids) as deliveries from relevo.due_chunks q
                               where q.project = l.project and q.lane = l.lane and q.due_at <= now()
                               order by q.due_at, q.id limit %(most)s) y) x
 where x.due > 0 and not relevo.is_news_project(l.project)
 order by x.oldest_at
 limit %(limit)s;

-- name: list_failing_events
-- Lists events whose fan-out fails, up to so many, those that failed most often first.
select e.id, e.event_type, e.fanout_failures as failures, e.fanout_error as error, e.fanout_retry_at as retry_at
  from relevo.notification_events e
 where e.fanout_failures is not null and e.state in ('waiting', 'fanning')
 order by e.fanout_failures desc, e.id
 limit %(limit)s;

-- name: list_held
-- Lists the events that the runaway brake holds: streams with their held events, read by skipping along their index and counted up to a bound. It
-- also lists types whose pushes were repeated too often.
with recursive held as (
  (select h.stream_id from relevo.held_events h where h.released_at is null order by h.stream_id limit 1)
  union all
  select n.stream_id
    from held s
    cross join lateral (select h.stream_id from relevo.held_events h
                         where h.released_at is null and h.stream_id > s.stream_id order by h.stream_id limit 1) n
)
select s.event_type, s.origin, coalesce(s.held_reason, 'it was released, but not to the end') as reason, n.events, false as repeats
  from held
  join relevo.event_streams s on s.id = held.stream_id
  cross join lateral (select count(*)::int as events
                        from (select from relevo.held_events h join relevo.notification_events e on e.id = h.event_id and e.state = 'held'
                               where h.stream_id = s.id and h.released_at is null limit %(limit)s) x) n
 where n.events > 0
union all
select x.event_type, x.origin, min(x.reason), count(*)::int, true
  from (select e.event_type, relevo.event_origin(e) as origin, r.reason
          from relevo.event_repeats r join relevo.notification_events e on e.id = r.event_id and e.ended_at is null
         where r.held_at is not null limit %(limit)s) x
 group by x.event_type, x.origin
 order by 1, 2, 5;

-- name: list_troubles
-- Lists the things that are left alone after an error while the rest goes on; one of which nothing was heard since its next try is not told.
select t.kind, t.name, t.error, t.failures, t.first_at, t.last_at, t.retry_at
  from relevo.troubles t
 where t.retry_at > now() - interval '1 minute'
 order by t.last_at desc, t.kind, t.name
 limit %(limit)s;

-- name: sum_claims
-- Sums up the claims: how many stand, how many deliveries they hold, how many have expired and wait for a reaper.
select count(*)::int as claims, coalesce(sum(cardinality(c.ids)), 0)::int as deliveries,
       count(*) filter (where c.leased_until <= now())::int as expired
  from relevo.claims c;

-- name: read_health
-- Returns the database's time, how long deliveries have waited in expired claims, and what waits for fan-out, texts and receipts.
select now() as now,
       (select extract(epoch from now() - min(c.leased_until))::float8
          from relevo.claims c where c.leased_until <= now()) as oldest_expired_s,
       (select count(*)::int from (select from relevo.notification_events e
                                    where e.state in ('waiting', 'fanning') and e.scheduled_at <= now() limit %(most)s) x) as events_waiting,
       exists (select from relevo.awaited_receipts w where w.look_at <= now()) as receipts_due,
       (select count(*)::int from (select from relevo.notification_events e
                                    where e.arguments is not null and e.texts is null and e.state = 'waiting'
                                      and e.scheduled_at <= now() - interval '1 minute' limit %(most)s) x) as unworded;

-- name: count_dead_letters
-- Counts the pushes that failed for good, up to a bound.
select count(*)::int as dead_letters from (select from relevo.dead_letters l where not relevo.is_news_project(l.project) limit %(most)s) x;

-- name: count_queue
-- Counts all pushes by status without counting them, and what of the open ones is claimed, by claims that live and that have expired.
select now() as now,
       coalesce((select jsonb_object_agg(c.status, c.n)
                   from (select s.status, sum(s.n) as n
                           from (select d.status, d.deliveries as n from relevo.delivery_counts d
                                 union all
                                 select p.status, p.deliveries
                                   from relevo.event_progress_deltas p
                                   left join lateral (select true as is_news from relevo.notification_events e
                                                       where (select exists (select from relevo.news_subscriptions s where s.webhook is not null))
                                                         and e.id = p.event_id and e.event_type = 'relevo.news' offset 0) e on true
                                  where e.is_news is null) s
                          group by s.status having sum(s.n) <> 0) c), '{}') as statuses,
       (select coalesce(sum(cardinality(c.ids)), 0)::int from relevo.claims c where c.cycle <> 'receipt' and c.leased_until > now()) as claimed,
       (select coalesce(sum(cardinality(c.ids)), 0)::int from relevo.claims c where c.cycle <> 'receipt' and c.leased_until <= now()) as expired;

-- name: list_pushes
-- Sums up what was sent, confirmed and failed per stretch of time, from the minutes kept and from what is not summed up to minutes yet;
-- push services that are spoken to directly tell of no receipts: what they took is confirmed by that.
select to_timestamp(floor(extract(epoch from x.at) / %(every_s)s) * %(every_s)s) as at, sum(x.sent)::bigint as sent,
       sum(case when relevo.native_platform(split_part(x.project, '::', 1)) is not null then x.sent else x.confirmed end)::bigint as confirmed,
       sum(x.failed)::bigint as failed
  from (select m.project, m.minute as at, m.sent, m.confirmed, m.failed from relevo.push_minutes m
         where m.minute >= %(since)s and not relevo.is_news_project(m.project)
        union all
        select t.project, t.at, t.sent, t.confirmed, t.failed
          from relevo.projects p join relevo.push_tallies t on t.project = p.project and t.at >= %(since)s
         where not relevo.is_news_project(p.project)) x
 group by 1
 order by 1;

-- name: count_phones
-- Counts of a bounded number of the newest phones how many there are, and how many may get pushes, by platform.
select i.platform, count(*)::int as phones, count(*) filter (where i.receives)::int as receiving
  from (select n.platform, relevo.may_receive(n) as receives
          from relevo.device_installations n where not n.for_news order by n.seq desc limit %(most)s) i
 group by i.platform
 order by i.platform;

-- name: sum_event_types
-- Sums up the newest events by type, news excluded, out of a bounded number: how many there are, when the last was enqueued, and the states of
-- their deliveries.
with looked as materialized (
  select e.id, e.event_type, e.created_at
    from (select n.id, n.event_type, n.created_at from relevo.notification_events n order by n.id desc limit %(look_at)s) e
   where e.event_type <> 'relevo.news'
), counted as materialized (
  select l.event_type, x.status, sum(x.deliveries) as n
    from looked l
    cross join lateral (select g.status, g.deliveries from relevo.event_progress g where g.event_id = l.id
                        union all
                        select d.status, d.deliveries from relevo.event_progress_deltas d where d.event_id = l.id) x
   group by l.event_type, x.status
  having sum(x.deliveries) > 0
), kinds as (
  select l.event_type, count(*)::int as events, max(l.created_at) as last_at from looked l group by l.event_type
)
select k.event_type, k.events, k.last_at, sum(k.events) over ()::int as looked_at,
       coalesce((select jsonb_object_agg(c.status, c.n) from counted c where c.event_type = k.event_type), '{}') as deliveries
  from kinds k
 order by k.events desc, k.event_type
 limit %(limit)s;

-- name: find_used
-- Returns whether a source was ever asked, and whether anything was ever archived.
select exists (select from relevo.source_state) as sources, exists (select from relevo.archive_exports) as archive;

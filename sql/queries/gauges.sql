-- The source of the whole fleet's metrics: rows of name, labels and value, from small tables and the heads of indexes alone. Each part is
-- bounded, whatever the tables hold: so many chunks are counted, and so many labels shown. The meaning of each gauge is in gauges.py.

-- name: read_queue_gauges
-- Reads the gauges of what waits. Lanes and projects with something due or awaited are found by skipping along an index.
-- Steps: find these lanes and projects, count the heads of their queues and what claims hold, then add a row for each further gauge
-- of events and receipts.
with recursive lane as (
  (select q.project, q.lane from relevo.due_chunks q order by q.project, q.lane limit 1)
  union all
  select n.project, n.lane
    from lane l
    cross join lateral (select q.project, q.lane from relevo.due_chunks q
                         where (q.project, q.lane) > (l.project, l.lane)
                         order by q.project, q.lane limit 1) n
), awaiting as (
  (select r.project from relevo.awaited_receipts r order by r.project limit 1)
  union all
  select n.project
    from awaiting a
    cross join lateral (select r.project from relevo.awaited_receipts r where r.project > a.project order by r.project limit 1) n
), due as materialized (
  select l.project, l.lane, x.due, x.oldest_at, z.quiet
    from (select * from lane l where not relevo.is_news_project(l.project) limit %(most_labels)s) l
    cross join lateral (select sum(cardinality(y.ids)) as due, min(y.due_at) as oldest_at
                          from (select q.due_at, q.ids from relevo.due_chunks q
                                 where q.project = l.project and q.lane = l.lane and q.due_at <= now()
                                 order by q.due_at, q.id limit %(most_chunks)s) y) x
    cross join lateral (select sum(cardinality(y.ids)) as quiet
                          from (select q.ids from relevo.due_chunks q
                                 where q.project = l.project and q.lane = l.lane and q.due_at > now() and q.attempt_count = 0 and not q.had_error
                                 order by q.due_at, q.id limit %(most_chunks)s) y) z
), held as materialized (
  select c.cycle, c.leased_until > now() as live, cardinality(c.ids) as deliveries from relevo.claims c limit %(most)s
)
select 'queue_deliveries' as name, array[x.status] as labels, sum(x.deliveries)::float8 as value
  from (select t.status, t.deliveries from relevo.delivery_counts t
        union all
        select d.status, d.deliveries
          from (select d.event_id, d.status, d.deliveries from relevo.event_progress_deltas d order by d.id limit %(most_deltas)s) d
          left join lateral (select true as is_news from relevo.notification_events e
                              where (select exists (select from relevo.news_subscriptions s where s.webhook is not null))
                                and e.id = d.event_id and e.event_type = 'relevo.news' offset 0) e on true
         where e.is_news is null) x
 group by x.status
union all select 'queue_due_deliveries', array[d.project, d.lane], coalesce(d.due, 0) from due d
union all select 'queue_quiet_deliveries', array[d.project, d.lane], coalesce(d.quiet, 0) from due d
union all select 'queue_oldest_due_seconds', array[d.project, d.lane], coalesce(extract(epoch from now() - d.oldest_at), 0) from due d
union all select 'claims', array[case when h.live then 'live' else 'expired' end], count(*) from held h group by h.live
union all select 'claimed_deliveries', array[case when h.live then 'live' else 'expired' end, h.cycle], sum(h.deliveries)
            from held h group by h.live, h.cycle
union all select 'events_waiting', '{}', count(*)
            from (select from relevo.notification_events e
                   where e.state in ('waiting', 'fanning') and e.scheduled_at <= now() limit %(most)s) e
union all select 'events_oldest_waiting_seconds', '{}', coalesce(max(extract(epoch from now() - x.scheduled_at)), 0)
            from (values ('urgent'), ('bulk')) as l(lane)
            cross join lateral (select e.scheduled_at from relevo.notification_events e
                                 where e.state in ('waiting', 'fanning') and e.lane = l.lane and e.scheduled_at <= now()
                                 order by e.scheduled_at limit 1) x
union all select 'events_held', '{}', count(*)
            from (select from relevo.held_events h where h.released_at is null limit %(most)s) h
union all select 'receipts_oldest_due_seconds', array[a.project], greatest(0, extract(epoch from now() - x.look_at))
            from (select * from awaiting limit %(most_labels)s) a
            cross join lateral (select r.look_at from relevo.awaited_receipts r
                                 where r.project = a.project order by r.look_at, r.id limit 1) x;

-- name: read_project_gauges
-- Reads the gauges of projects and of news subscriptions.
with project as materialized (
  select * from relevo.projects p where not relevo.is_news_project(p.project) order by p.project limit %(most_labels)s
), subscription as materialized ( -- with how its webhook fares
  select s.name, s.head - greatest(c.position, s.tail) as waiting, s.dropped, s.webhook, p.breaker <> 'closed' as is_open, q.oldest_at
    from (select * from relevo.news_subscriptions s order by s.name limit %(most_labels)s) s
    join relevo.news_cursors c on c.subscription = s.name
    left join relevo.projects p on p.project = relevo.sending_project('relevo.news', s.webhook)
    cross join lateral (select min(x.created_at) as oldest_at
                          from (select q.created_at from relevo.due_chunks q
                                 where q.project = relevo.sending_project('relevo.news', s.webhook) and q.lane = 'urgent'
                                 order by q.due_at limit %(most_chunks)s) x) q
)
select 'project_rate_share_ratio', array[p.project], p.rate_share from project p
union all select 'project_rate_tokens', array[p.project, l.lane], l.tokens
            from project p cross join lateral (values ('urgent', p.urgent_tokens), ('bulk', p.bulk_tokens)) as l(lane, tokens)
union all select 'project_breaker_open', array[p.project], (p.breaker <> 'closed')::int from project p
union all select 'project_brake_active', array[p.project], (p.pruning_stopped_at is not null)::int from project p
union all select 'news_waiting', array[s.name], s.waiting from subscription s
union all select 'news_dropped', array[s.name], s.dropped from subscription s
union all select 'news_oldest_on_their_way_seconds', array[s.name, s.webhook], coalesce(extract(epoch from now() - s.oldest_at), 0)
            from subscription s where s.webhook is not null
union all select 'news_breaker_open', array[s.name, s.webhook], coalesce(s.is_open, false)::int from subscription s where s.webhook is not null;

-- name: read_fleet_gauges
-- Reads the gauges of workers, cycles, sources, the archive and the database.
-- There is one branch for each gauge, with its name, the values of its labels and its value.
-- The living workers are read once, within a bound, and so are the labels of machines and push services.
-- A machine is silent if one of its workers is late, or was lost within the last 15 minutes,
-- and no living worker was started there since then: who was restarted is not missed.
with worker as materialized (
  select w.*, relevo.is_alive(w) as heard,
         relevo.is_late(w) as late
    from relevo.workers w where w.stopped_at is null and w.lost_at is null limit %(most)s
)
select 'workers', array[case when not w.heard then 'silent' when w.stopping_at is not null then 'stopping'
                             when w.late then 'late' else 'alive' end], count(*)
  from worker w group by 2
union all select 'workers', array['lost'], count(*)
            from relevo.workers w
           where w.role = 'run' and (w.stopped_at is not null or w.lost_at is not null)
             and greatest(w.stopped_at, w.lost_at) > now() - interval '1 hour' and w.lost_at is not null
union all select 'listeners_degraded', '{}', count(*) from worker w where w.heard and w.role = 'run' and w.wakeups = 'polling'
union all select 'hung_calls', '{}', coalesce(sum(jsonb_array_length(w.hung)), 0) from worker w where w.heard
union all select 'clock_skew_seconds', array[w.hostname], max(abs(w.clock_ahead_s))
            from (select * from worker limit %(most_labels)s) w where w.heard and w.clock_ahead_s is not null group by w.hostname
union all select 'worker_silent_seconds', array[w.hostname], max(extract(epoch from now() - w.last_seen_at))
            from (select w.hostname, w.last_seen_at from worker w where w.role = 'run' and w.late
                  union all
                  select w.hostname, w.last_seen_at from relevo.workers w
                   where w.role = 'run' and (w.stopped_at is not null or w.lost_at is not null)
                     and greatest(w.stopped_at, w.lost_at) > now() - interval '15 minutes' and w.lost_at is not null
                     and w.last_seen_at > now() - interval '15 minutes'
                  limit %(most_labels)s) w
           where not exists (select from worker o where o.role = 'run' and o.hostname = w.hostname and o.started_at > w.last_seen_at)
           group by w.hostname
union all select 'service_unreachable', array[u.hostname, u.service], 1
            from (select distinct w.hostname, x.value ->> 'service' as service
                    from worker w cross join jsonb_array_elements(w.unreachable) as x(value)
                   where w.heard and (x.value ->> 'failures')::int > 1 and (x.value ->> 'retry_at')::timestamptz > now() - interval '1 minute'
                   limit %(most_labels)s) u
union all select 'disk_full', array[u.hostname, u.place], 1
            from (select distinct w.hostname, x.value ->> 'place' as place
                    from worker w cross join jsonb_array_elements(w.unwritable) as x(value) where w.heard limit %(most_labels)s) u
union all select 'cycle_quiet_seconds', array[s.cycle, s.source], extract(epoch from now() - s.last_round_at)
            from relevo.cycle_state s where s.last_round_at is not null
union all select 'digests_oldest_due_seconds', '{}', coalesce(extract(epoch from now() - min(s.closes_at)), 0) from relevo.digest_slots s where s.closes_at <= now() and exists (select from relevo.digest_items x where x.slot_id = s.id)
union all select 'cycle_failures', array[s.cycle, s.source], s.failures from relevo.cycle_state s where s.last_round_at is not null
union all select 'cycle_paused', array[s.cycle, s.source], (s.paused_at is not null)::int from relevo.cycle_state s
union all select 'source_age_seconds', array[s.source], extract(epoch from now() - s.last_ok_at)
            from relevo.source_state s where s.last_ok_at is not null
union all select 'source_problems', array[s.source], cardinality(s.problems) from relevo.source_state s
union all select 'archive_waiting_months', '{}', count(*) from relevo.archive_exports x where x.verified_at is null and x.dropped_at is null
union all select 'archive_lag_seconds', '{}', coalesce(max(extract(epoch from now() - coalesce(x.sealed_at, x.retired_at))), 0)
            from relevo.archive_exports x where x.verified_at is null and x.dropped_at is null
union all select 'table_dead_tuples', array[s.relname::text], s.n_dead_tup
            from pg_stat_user_tables s
           where s.relid = any (%(watched)s::regclass[])
union all select 'oldest_snapshot_seconds', '{}', coalesce(max(extract(epoch from now() - a.xact_start)), 0)
            from pg_stat_activity a
           where a.backend_xmin is not null and a.pid <> pg_backend_pid() and coalesce(a.datname, current_database()) = current_database()
union all select 'oldest_prepared_seconds', '{}', coalesce(max(extract(epoch from now() - p.prepared)), 0)
            from pg_prepared_xacts p where p.database = current_database()
union all select 'database_copied', '{}', relevo.belongs_elsewhere(%(instance)s)::int;

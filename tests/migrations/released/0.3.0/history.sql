-- What operators look up page by page. A page with filters looks at so many rows and tells where it stopped, so that it costs the same however
-- much there is: the first columns of every row say how many were looked at, and the place of the last of them.

-- name: page_runs
-- Lists runs that fit, newest first, from a place on, out of so many of each cycle; a row without an id says that none fits.
with piece as materialized (
  select r.*
    from relevo.cycle_state s
    cross join lateral (select r.id, r.cycle, r.source, r.trigger, r.worker_id, r.started_at, r.finished_at, r.outcome, r.reason, r.counts, r.error_message
                          from relevo.worker_runs r
                         where (r.cycle, r.source) >= (s.cycle, s.source) and (r.cycle, r.source) <= (s.cycle, s.source) -- see list_durations
                           and (r.started_at, r.id) < (coalesce(%(before_at)s::timestamptz, 'infinity'), coalesce(%(before)s::bigint, 9223372036854775807))
                           and r.started_at >= coalesce(now() - %(hours)s::int * interval '1 hour', '-infinity')
                         order by r.cycle, r.source, r.started_at desc, r.id desc
                         limit %(look)s) r
   where (%(cycle)s::text is null or s.cycle = %(cycle)s) and (%(source)s::text is null or s.source = %(source)s)
   order by r.started_at desc, r.id desc
   limit %(look)s
)
select e.looked, e.last_at, e.last_id, f.*, extract(epoch from coalesce(f.finished_at, now()) - f.started_at)::float8 as seconds, now() as now
  from (select count(*)::int as looked, min(p.started_at) as last_at, (array_agg(p.id order by p.started_at, p.id))[1] as last_id from piece p) e
  left join (select p.* from piece p
              where (%(outcome)s::text is null or p.outcome = %(outcome)s) and (%(worker)s::text is null or p.worker_id = %(worker)s)
              order by p.started_at desc, p.id desc
              limit %(limit)s) f on true
 order by f.started_at desc, f.id desc;

-- name: page_troubled_runs
-- Lists runs that did not go well, newest first, from a place on, out of so many of them; a row without an id says that none fits.
with piece as materialized (
  select r.id, r.cycle, r.source, r.trigger, r.worker_id, r.started_at, r.finished_at, r.outcome, r.reason, r.counts, r.error_message
    from relevo.worker_runs r
   where r.outcome in ('partial', 'failed', 'skipped', 'abandoned')
     and (r.started_at, r.id) < (coalesce(%(before_at)s::timestamptz, 'infinity'), coalesce(%(before)s::bigint, 9223372036854775807))
     and r.started_at >= coalesce(now() - %(hours)s::int * interval '1 hour', '-infinity')
   order by r.started_at desc, r.id desc
   limit %(look)s
)
select e.looked, e.last_at, e.last_id, f.*, extract(epoch from coalesce(f.finished_at, now()) - f.started_at)::float8 as seconds, now() as now
  from (select count(*)::int as looked, min(p.started_at) as last_at, (array_agg(p.id order by p.started_at, p.id))[1] as last_id from piece p) e
  left join (select p.* from piece p
              where p.outcome = %(outcome)s and (%(worker)s::text is null or p.worker_id = %(worker)s)
                and (%(cycle)s::text is null or p.cycle = %(cycle)s) and (%(source)s::text is null or p.source = %(source)s)
              order by p.started_at desc, p.id desc
              limit %(limit)s) f on true
 order by f.started_at desc, f.id desc;

-- name: read_run
-- Reads one run, and the runs of its cycle before and after it.
select r.id, r.cycle, r.source, r.slot_at, r.trigger, r.worker_id, r.started_at, r.finished_at, r.outcome, r.reason, r.counts, r.error_message,
       extract(epoch from coalesce(r.finished_at, now()) - r.started_at)::float8 as seconds, now() as now,
       (select b.id from relevo.worker_runs b
         where b.cycle = r.cycle and b.source = r.source and (b.started_at, b.id) < (r.started_at, r.id)
         order by b.started_at desc, b.id desc limit 1) as former,
       (select a.id from relevo.worker_runs a
         where a.cycle = r.cycle and a.source = r.source and (a.started_at, a.id) > (r.started_at, r.id)
         order by a.started_at, a.id limit 1) as later
  from relevo.worker_runs r
 where r.id = %(run_id)s;

-- name: page_audit
-- Lists what was done that fits, newest first, from a place on, out of so many entries; a row without an id says that none fits.
with piece as materialized (
  select a.id, a.at, a.actor, a.face, a.action, a.target, a.outcome, a.result, a.error_message, a.finished_at
    from relevo.audit_log a
   where a.id < coalesce(%(before)s::bigint, 9223372036854775807)
   order by a.id desc
   limit %(look)s
)
select e.looked, e.last_id, f.*, now() as now
  from (select count(*)::int as looked, min(p.id) as last_id from piece p) e
  left join (select p.* from piece p
              where (%(action)s::text is null or p.action = %(action)s) and (%(outcome)s::text is null or p.outcome = %(outcome)s)
                and (%(actor)s::text is null or position(lower(%(actor)s) in lower(p.actor)) > 0)
                and p.at >= coalesce(now() - %(hours)s::int * interval '1 hour', '-infinity')
              order by p.id desc
              limit %(limit)s) f on true
 order by f.id desc;

-- name: page_rejects
-- Lists what sources offered and could not be used, newest first, from a place on, out of so many; a row without an id says that there is none.
with piece as materialized (
  select r.id, r.source, r.place, r.external_id, r.reason, r.attempts, r.retry_at, r.created_at, r.updated_at, r.resolved_at
    from relevo.ingest_rejects r
   where r.id < coalesce(%(before)s::bigint, 9223372036854775807)
   order by r.id desc
   limit %(look)s
)
select e.looked, e.last_id, f.*, now() as now
  from (select count(*)::int as looked, min(p.id) as last_id from piece p) e
  left join (select p.* from piece p
              where p.resolved_at is null and (%(source)s::text is null or p.source = %(source)s)
              order by p.id desc
              limit %(limit)s) f on true
 order by f.id desc;

-- name: list_quotas
-- Lists the quotas in which sources ask: today's requests, the pace, and when the next may start.
select l.lane as quota, case when l.day = (now() at time zone %(timezone)s)::date then l.requests else 0 end as requests, l.pace_ms, l.not_before,
       l.asked_at, now() as now
  from relevo.source_lanes l
 order by l.lane
 limit 100;

-- name: group_dead_letters
-- Groups the newest dead letters by error, project and type: how many, since when, how many past their deadline, and an example of each.
with piece as materialized (
  select l.event_day, l.delivery_id, l.event_id, l.project, l.error_code, l.died_at
    from relevo.dead_letters l
   order by l.event_day desc, l.delivery_id desc
   limit %(look)s
)
select g.*, now() as now, sum(g.deliveries) over ()::int as looked,
       (select d.last_error_message from relevo.notification_deliveries d where d.event_day = g.days[1] and d.id = g.ids[1]) as example
  from (select coalesce(p.error_code, 'none') as error_code, p.project, coalesce(e.event_type, '') as event_type, count(*)::int as deliveries,
               count(*) filter (where e.deadline_at <= now())::int as too_late, min(p.died_at) as first_at, max(p.died_at) as last_at,
               (array_agg(p.event_day order by p.event_day desc, p.delivery_id desc))[1:3] as days,
               (array_agg(p.delivery_id order by p.event_day desc, p.delivery_id desc))[1:3] as ids,
               (array_agg(p.event_id order by p.event_day desc, p.delivery_id desc))[1:3] as events
          from piece p
          left join relevo.notification_events e on e.id = p.event_id
         group by 1, 2, 3
         order by 4 desc, 1, 2, 3
         limit 200) g
 order by g.deliveries desc, g.error_code, g.project, g.event_type;

-- name: list_partitions
-- Lists the months of deliveries and journal that are in the hot tables: how large each is, and about how many rows it has.
select e.entity, c.relname as name, pg_total_relation_size(c.oid) as bytes, pg_stat_get_live_tuples(c.oid) as rows_about,
       case when c.relname ~ ('^' || e.entity || '_\d{4}_(0[1-9]|1[0-2])$') then to_date(right(c.relname, 7), 'YYYY_MM') end as month
  from unnest(array['notification_deliveries', 'push_requests']) as e(entity)
  join pg_inherits i on i.inhparent = format('relevo.%%I', e.entity)::regclass
  join pg_class c on c.oid = i.inhrelid
 order by month desc nulls first, e.entity
 limit 200;

-- name: page_archive
-- Lists the months that left the hot tables, newest first, before a month if asked.
select x.entity, x.month, x.state, x.rows, x.bytes, x.parts, x.retired_at, x.exported_at, x.verified_at, x.drop_eligible_at, x.dropped_at,
       x.mismatches, x.last_error, now() as now
  from relevo.archive_exports x
 where x.month < coalesce(%(before)s::date, 'infinity')
 order by x.month desc, x.entity
 limit %(limit)s;

-- name: list_named_phones
-- Lists the installations that an event names.
select a.installation_id from relevo.event_audience a where a.event_id = %(event_id)s order by a.installation_id limit %(limit)s;

-- name: find_event_spans
-- Tells between which instants an event waited for each cycle on its way, by a bounded number of its deliveries; what has no end lasts until now.
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

-- name: list_pauses
-- Lists the pauses of cycles that are over and fell into the spans given for each, oldest first: who paused it, why and when, who resumed it
-- and when, as the record of what operators did has it. Of a span so many of the first that ended in it or after it are looked at.
select distinct on (p.at, p.id) s.cycle, p.at as paused_at, p.actor as paused_by, coalesce(p.target ->> 'reason', '') as reason, r.at as resumed_at,
       r.actor as resumed_by
  from unnest(%(cycles)s::text[], %(sources)s::text[], %(sinces)s::timestamptz[], %(untils)s::timestamptz[]) as s(cycle, source, since, until)
  cross join lateral (select r.at, r.actor, coalesce(r.target ->> 'source', '') as source
                        from relevo.audit_log r
                       where r.action in ('pause', 'resume') and r.target ->> 'cycle' = s.cycle and r.at >= s.since
                         and r.action = 'resume' and r.outcome = 'ok' and r.result ->> 'answer' = 'true'
                         and coalesce(r.target ->> 'source', '') in ('', s.source)
                       order by r.at
                       limit %(look)s) r
  cross join lateral (select p.id, p.at, p.actor, p.target
                        from relevo.audit_log p
                       where p.action in ('pause', 'resume') and p.target ->> 'cycle' = s.cycle and p.at < r.at
                         and p.action = 'pause' and p.outcome = 'ok' and coalesce(p.target ->> 'source', '') = r.source
                         and p.result ->> 'paused_since' is null -- else it was off before, and stayed so
                       order by p.at desc
                       limit 1) p
 where p.at < s.until
 order by p.at, p.id
 limit %(look)s;

-- name: find_used
-- Tells whether a source was ever asked, and whether anything was ever archived.
select exists (select from relevo.source_state) as sources, exists (select from relevo.archive_exports) as archive;

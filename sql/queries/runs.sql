-- A page with filters looks at so many rows and returns where it stopped, so that it costs the same however much there is: the first columns
-- of every row are how many were looked at, and the place of the last of them.

-- name: list_runs
-- Lists runs, newest first, by cycle and outcome if asked.
select r.id, r.cycle, r.source, r.slot_at, r.trigger, r.worker_id, r.started_at, r.finished_at, r.outcome, r.reason, r.counts,
       r.error_message, extract(epoch from coalesce(r.finished_at, now()) - r.started_at)::float8 as seconds
  from relevo.worker_runs r
 where (%(cycle)s::text is null or r.cycle = %(cycle)s)
   and (%(outcome)s::text is null or r.outcome = %(outcome)s)
 order by r.started_at desc, r.id desc
 limit %(limit)s;

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

-- name: list_durations
-- Lists how long the last runs of each cycle took, and how they ended, newest first. It reads each cycle as a range, whose order only the index by
-- cycle has. By the index of all runs the planner would search all runs for a cycle that seldom runs.
select s.cycle, s.source, r.started_at, r.outcome, extract(epoch from coalesce(r.finished_at, now()) - r.started_at)::float8 as seconds
  from relevo.cycle_state s
  cross join lateral (select r.started_at, r.finished_at, r.outcome
                        from relevo.worker_runs r
                       where (r.cycle, r.source) >= (s.cycle, s.source) and (r.cycle, r.source) <= (s.cycle, s.source) and r.outcome <> 'skipped'
                       order by r.cycle, r.source, r.started_at desc, r.id desc limit %(limit)s) r
 order by s.cycle, s.source, r.started_at desc;

-- name: list_cycles
-- Lists the cycles with their last round, last run, pause switch and holder.
select s.cycle, s.source, s.rounds, s.idle_rounds, s.wakeups_skipped, s.slots_skipped, s.asleep, s.last_round_at, s.last_ok_at, s.failures, s.round_gap_s,
       s.every_ms, s.cron, s.timezone, coalesce(s.off_reason, '') as off,
       extract(epoch from now() - s.last_round_at)::float8 as quiet_s, extract(epoch from now() - s.last_ok_at)::float8 as since_ok_s,
       pause.paused_at, pause.paused_reason, pause.source as paused_source,
       l.worker_id as held_by, last_run.outcome as last_outcome, last_run.started_at as last_run_at, last_run.error_message
  from relevo.cycle_state s
  left join lateral (select p.paused_at, p.paused_reason, p.source
                       from relevo.cycle_state p
                      where p.cycle = s.cycle and p.source in ('', s.source) and p.paused_at is not null
                      order by p.source limit 1) pause on true
  left join relevo.cycle_leases l on l.cycle = s.cycle and l.source = s.source and l.leased_until > now()
  left join lateral (select r.outcome, r.started_at, r.error_message
                       from relevo.worker_runs r
                      where (r.cycle, r.source) >= (s.cycle, s.source) and (r.cycle, r.source) <= (s.cycle, s.source) and r.outcome <> 'skipped' -- see list_durations
                      order by r.cycle, r.source, r.started_at desc, r.id desc limit 1) last_run on true
 order by s.cycle, s.source;

-- name: sum_runs
-- Sums up what all cycles did since they first ran.
select s.cycle, sum(s.rounds)::bigint as rounds, coalesce(jsonb_agg(s.totals) filter (where s.totals <> '{}'), '[]') as totals
  from relevo.cycle_state s
 group by s.cycle
 order by s.cycle;

-- name: read_last_error
-- Reads the last run that failed within a day, out of the last hundred of each cycle.
select r.cycle, r.finished_at, r.error_message
  from (select distinct s.cycle, s.source from relevo.cycle_state s) s
  cross join lateral (select r.cycle, r.finished_at, r.error_message, r.outcome from relevo.worker_runs r
                       where r.cycle = s.cycle and r.source = s.source and r.started_at > now() - interval '1 day'
                       order by r.started_at desc, r.id desc limit 100) r
 where r.outcome = 'failed'
 order by r.finished_at desc nulls last
 limit 1;

-- name: list_pauses
-- Lists the ended pauses of cycles within the given spans, oldest first: who paused the cycle, why and when, and who resumed it and when, from the
-- audit log. For each span it reads a bounded number of the pauses that ended in the span or after it.
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

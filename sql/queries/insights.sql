-- name: list_runs
-- Lists runs, newest first, by cycle and outcome if asked.
select r.id, r.cycle, r.source, r.slot_at, r.trigger, r.worker_id, r.started_at, r.finished_at, r.outcome, r.reason, r.counts,
       r.error_message, extract(epoch from coalesce(r.finished_at, now()) - r.started_at)::float8 as seconds
  from relevo.worker_runs r
 where (%(cycle)s::text is null or r.cycle = %(cycle)s)
   and (%(outcome)s::text is null or r.outcome = %(outcome)s)
 order by r.started_at desc, r.id desc
 limit %(limit)s;

-- name: list_workers
-- Lists the workers that live, and those that ended within the last day.
select w.worker_id, w.role, w.cycles, w.version, w.hostname, w.pid, w.wakeups, w.started_at, w.last_seen_at,
       extract(epoch from now() - w.last_seen_at)::float8 as silent_s,
       case when w.stopped_at is not null then 'stopped'
            when w.lost_at is not null then 'lost'
            when w.last_seen_at + w.lease_ms * interval '1 millisecond' < now() then 'silent'
            when w.stopping_at is not null then 'stopping'
            else 'alive' end as state
  from relevo.workers w
 where coalesce(w.stopped_at, w.lost_at) is null or coalesce(w.stopped_at, w.lost_at) > now() - interval '1 day'
 order by (coalesce(w.stopped_at, w.lost_at) is null) desc, w.started_at desc
 limit %(limit)s;

-- name: list_cycles
-- Lists the cycles with their last round, last run, pause switch and holder.
select s.cycle, s.source, s.rounds, s.idle_rounds, s.wakeups_skipped, s.asleep, s.last_round_at,
       extract(epoch from now() - s.last_round_at)::float8 as quiet_s,
       (select p.paused_reason from relevo.cycle_state p where p.cycle = s.cycle and p.source = '') as paused_reason,
       l.worker_id as held_by, last_run.outcome as last_outcome, last_run.started_at as last_run_at, last_run.error_message
  from relevo.cycle_state s
  left join relevo.cycle_leases l on l.cycle = s.cycle and l.source = s.source and l.leased_until > now()
  left join lateral (select r.outcome, r.started_at, r.error_message
                       from relevo.worker_runs r
                      where r.cycle = s.cycle and r.source = s.source and r.outcome <> 'skipped'
                      order by r.started_at desc, r.id desc limit 1) last_run on true
 order by s.cycle, s.source;

-- name: sum_claims
-- Sums up the claims: how many stand, how many deliveries they hold, how many have expired and wait for a reaper.
select count(*)::int as claims, coalesce(sum(cardinality(c.ids)), 0)::int as deliveries,
       count(*) filter (where c.leased_until <= now())::int as expired
  from relevo.claims c;

-- name: read_health
-- Tells how long ago a reaper made its last round, and how many deliveries have waited in expired claims.
select (select extract(epoch from now() - s.last_round_at)::float8
          from relevo.cycle_state s where s.cycle = 'reaper' and s.source = '') as reaper_quiet_s,
       (select extract(epoch from now() - min(c.leased_until))::float8
          from relevo.claims c where c.leased_until <= now()) as oldest_expired_s;

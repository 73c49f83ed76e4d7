-- name: register_worker
-- Records a process start; the same WORKER_ID again means that it was restarted.
insert into relevo.workers (worker_id, hostname, pid, version, role, cycles, composers, started_at, last_seen_at, lease_ms, rests_because, clock_ahead_s)
values (%(worker_id)s, %(hostname)s, %(pid)s, %(version)s, %(role)s, %(cycles)s, %(composers)s,
        relevo.now(%(now)s), relevo.now(%(now)s), %(lease_ms)s, %(rests_because)s,
        %(clock)s::float8 - extract(epoch from clock_timestamp())::float8)
on conflict (worker_id) do update
   set hostname = excluded.hostname, pid = excluded.pid, version = excluded.version, role = excluded.role,
       cycles = excluded.cycles, composers = excluded.composers, started_at = excluded.started_at, last_seen_at = excluded.last_seen_at,
       lease_ms = excluded.lease_ms, wakeups = 'off', stopping_at = null, stopped_at = null, lost_at = null, hung = '[]', asleep = '{}', http = null, unreachable = '[]', unwritable = '[]',
       rests_because = excluded.rests_because, clock_ahead_s = excluded.clock_ahead_s;

-- name: forget_awake
-- Has everybody call fan-out and dispatch until they are known to be awake.
select relevo.forget_awake();

-- name: describe_cycles
-- Writes down when each cycle runs, and why it cannot if it cannot, as this process has it; returns how many could not be written, because
-- somebody holds their lines: nobody is waited for.
with given as materialized (
  select u.cycle, u.source, u.every_ms, u.cron, u.timezone, u.off_reason
    from unnest(%(cycles)s::text[], %(sources)s::text[], %(every_ms)s::bigint[], %(crons)s::text[], %(timezones)s::text[], %(off_reasons)s::text[])
           as u(cycle, source, every_ms, cron, timezone, off_reason)
), differing as materialized (
  select g.* from given g join relevo.cycle_state s on s.cycle = g.cycle and s.source = g.source
   where (s.every_ms, s.cron, s.timezone, s.off_reason) is distinct from (g.every_ms, g.cron, g.timezone, g.off_reason)
), held as materialized (
  select s.cycle, s.source from relevo.cycle_state s
   where (s.cycle, s.source) in (select d.cycle, d.source from differing d) for no key update skip locked
), changed as (
  update relevo.cycle_state s set every_ms = d.every_ms, cron = d.cron, timezone = d.timezone, off_reason = d.off_reason
    from differing d, held h
   where h.cycle = d.cycle and h.source = d.source and s.cycle = d.cycle and s.source = d.source
), added as (
  insert into relevo.cycle_state (cycle, source, every_ms, cron, timezone, off_reason)
  select g.* from given g
   where not exists (select from relevo.cycle_state s where s.cycle = g.cycle and s.source = g.source)
   order by g.cycle, g.source
  on conflict do nothing
)
select (select count(*) from differing) - (select count(*) from held);

-- name: add_providers
-- Lets installations name the push services that this process serves.
insert into relevo.providers (provider) select unnest(%(providers)s::text[]) on conflict do nothing;

-- name: beat_worker
-- Records that a worker is alive and when its next heartbeat is due. It also records the worker's hung calls, HTTP address, reason to rest,
-- unusable credentials, unwritable places and clock error. Returns whether somebody had declared the worker lost in between.
with before as (select lost_at from relevo.workers where worker_id = %(worker_id)s)
update relevo.workers w
   set last_seen_at = relevo.now(%(now)s), lost_at = null, stopped_at = null, http = %(http)s, rests_because = %(rests_because)s,
       unusable = %(unusable)s::text[], unwritable = %(unwritable)s, next_beat_at = relevo.now(%(now)s) + %(next_ms)s * interval '1 millisecond',
       clock_ahead_s = %(clock)s::float8 - extract(epoch from clock_timestamp())::float8,
       hung = coalesce((select jsonb_agg(jsonb_build_object('what', h.what, 'project', h.project, 'calls', h.calls,
                                 'since', relevo.now(%(now)s) - h.seconds * interval '1 second'))
                          from jsonb_to_recordset(%(hung)s) as h(what text, project text, calls int, seconds float8)), '[]')
  from before
 where w.worker_id = %(worker_id)s
returning before.lost_at is not null as was_lost;

-- name: note_wakeups
-- Records whether a worker hears wake-ups or polls.
update relevo.workers set wakeups = %(wakeups)s where worker_id = %(worker_id)s;

-- name: note_stopping
-- Records that a worker has begun to stop.
update relevo.workers set stopping_at = relevo.now(%(now)s) where worker_id = %(worker_id)s;

-- name: note_stopped
-- Records that a worker stopped in good order.
update relevo.workers
   set stopped_at = relevo.now(%(now)s), last_seen_at = relevo.now(%(now)s), lost_at = null
 where worker_id = %(worker_id)s;

-- name: remove_former_ticks
-- Removes the rows of ticks that ended before; those that somebody has locked go with the next one.
delete from relevo.workers w
 where w.worker_id in (select t.worker_id from relevo.workers t
                        where t.role = 'tick' and t.stopped_at is not null and t.worker_id <> %(worker_id)s
                          for update skip locked);

-- name: remove_worker
-- Removes the row of a command that ran cycles once and ended in good order; its runs keep its name.
delete from relevo.workers where worker_id = %(worker_id)s;

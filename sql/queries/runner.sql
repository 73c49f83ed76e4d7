-- name: open_round
-- Opens a round of a cycle: returns a run id, the database's time, the operator's pause switch, and whether the database belongs elsewhere. Returns
-- also which transactions are open: all before the first number have ended, and none from the second on had begun.
select nextval('relevo.run_ids') as run_id,
       now() as started_at,
       (select s.paused_reason from relevo.cycle_state s
         where s.cycle = %(cycle)s and s.source in ('', %(source)s) and s.paused_at is not null
         order by s.source limit 1) as paused_reason,
       relevo.belongs_elsewhere(%(instance)s) as belongs_elsewhere,
       pg_snapshot_xmin(pg_current_snapshot())::text::bigint as ended_before,
       pg_snapshot_xmax(pg_current_snapshot())::text::bigint as begun_before;

-- name: begin_run
-- Writes the row of a run that has work to do.
insert into relevo.worker_runs (id, cycle, source, slot_at, trigger, worker_id, started_at, outcome)
values (%(run_id)s, %(cycle)s, %(source)s, %(slot_at)s, %(trigger)s, %(worker_id)s, %(started_at)s, 'running')
on conflict (id) do nothing;

-- name: begin_slot_run
-- Takes a slot and writes its run; returns nothing if the slot is filled or its last failure is still too fresh.
insert into relevo.worker_runs (id, cycle, source, slot_at, trigger, worker_id, started_at, outcome)
select %(run_id)s, %(cycle)s, %(source)s, %(slot_at)s, %(trigger)s, %(worker_id)s, %(started_at)s, 'running'
 where not exists (
   select from relevo.worker_runs r
    where r.cycle = %(cycle)s and r.source = %(source)s and r.slot_at = %(slot_at)s and r.outcome = 'failed'
   having max(r.finished_at) + relevo.retry_delay(count(*)::int, %(error_base_ms)s, %(error_max_ms)s, 0, 0, 0) > now())
on conflict (cycle, source, slot_at) where slot_at is not null and outcome in ('running', 'ok', 'partial') do nothing
returning id;

-- name: free_repeated_slots
-- Frees a slot and those after it if some lie more than a slot ahead of the clock: it was set back, and their time comes again.
update relevo.worker_runs r
   set slot_at = null, reason = coalesce(r.reason, 'its slot came again: the clock was set back')
 where r.cycle = %(cycle)s and r.source = %(source)s and r.slot_at >= %(slot_at)s
   and (select f.slot_at from relevo.worker_runs f
         where f.cycle = %(cycle)s and f.source = %(source)s and f.outcome in ('running', 'ok', 'partial') and f.slot_at is not null
         order by f.slot_at desc limit 1) > clock_timestamp() + %(slot_ms)s::bigint * interval '1 millisecond';

-- name: read_slot_wait
-- Returns for how many seconds a slot's failures keep it closed, or nothing if a run filled it.
select extract(epoch from max(r.finished_at) + relevo.retry_delay(count(*)::int, %(error_base_ms)s, %(error_max_ms)s, 0, 0, 0) - now())::float8
  from relevo.worker_runs r
 where r.cycle = %(cycle)s and r.source = %(source)s and r.slot_at = %(slot_at)s and r.outcome = 'failed'
   and not exists (select from relevo.worker_runs f
                    where f.cycle = r.cycle and f.source = r.source and f.slot_at = r.slot_at and f.outcome in ('running', 'ok', 'partial'));

-- name: abandon_running
-- Ends the runs a former holder of this singleton left open; whoever holds the lease knows that they are dead.
with open as materialized ( -- all that run are few, all runs of a cycle are not
  select o.id from relevo.worker_runs o where o.outcome = 'running'
)
update relevo.worker_runs r
   set outcome = 'abandoned', finished_at = now(),
       error_message = format('worker %%s lost the lease of %%s to %%s', r.worker_id, r.cycle, %(worker_id)s::text)
 where r.id = any (array(select o.id from open o)) and r.cycle = %(cycle)s and r.source = %(source)s and r.outcome = 'running'
returning r.id, r.worker_id;

-- name: end_leftover_runs
-- Ends the runs of a cycle that this worker has open though none is under way in it: their end was not kept.
update relevo.worker_runs r
   set outcome = 'abandoned', finished_at = now(),
       error_message = 'how this run ended was not kept: the database was restarted or could not be written to'
 where r.worker_id = %(worker_id)s and r.outcome = 'running' and r.cycle = %(cycle)s and r.source = %(source)s
returning r.id;

-- name: finish_run
-- Writes the end of a run, begun or not yet written, maybe without the slot it took; an abandoned run stays abandoned.
insert into relevo.worker_runs (id, cycle, source, slot_at, trigger, worker_id, started_at, finished_at, outcome, reason, counts, error_message)
values (%(run_id)s, %(cycle)s, %(source)s, %(slot_at)s, %(trigger)s, %(worker_id)s, %(started_at)s, clock_timestamp(),
        %(outcome)s, %(reason)s, %(counts)s, %(error_message)s)
on conflict (id) do update
   set slot_at = excluded.slot_at, finished_at = excluded.finished_at, outcome = excluded.outcome, reason = excluded.reason,
       counts = excluded.counts, error_message = excluded.error_message
 where relevo.worker_runs.outcome = 'running'
returning id;

-- name: count_round
-- Counts a round in the cycle's line, and adds what its run counted.
insert into relevo.cycle_state as s (cycle, source, rounds, idle_rounds, last_round_at, last_ok_at, failures, totals)
values (%(cycle)s, %(source)s, 1, %(idle)s::int, now(), case when not %(failed)s then now() end, %(failed)s::int, %(counts)s::jsonb)
on conflict (cycle, source) do update
   set rounds = s.rounds + 1, idle_rounds = s.idle_rounds + excluded.idle_rounds, last_round_at = excluded.last_round_at,
       totals = relevo.add_counts(s.totals, excluded.totals),
       last_ok_at = coalesce(excluded.last_ok_at, s.last_ok_at), failures = case when %(failed)s then s.failures + 1 else 0 end,
       round_gap_s = 0.8 * coalesce(s.round_gap_s, greatest(0, extract(epoch from now() - s.last_round_at))::float8)
                     + 0.2 * greatest(0, extract(epoch from now() - s.last_round_at))::float8;

-- name: count_skipped_wakeup
-- Counts a wake-up that found its cycle busy, locked or paused.
insert into relevo.cycle_state as s (cycle, source, wakeups_skipped)
values (%(cycle)s, %(source)s, 1)
on conflict (cycle, source) do update set wakeups_skipped = s.wakeups_skipped + 1;

-- name: count_skipped_slot
-- Counts a slot or tick that was not run and is not worth a row: another run has it, or its reason was told before.
insert into relevo.cycle_state as s (cycle, source, slots_skipped)
values (%(cycle)s, %(source)s, 1)
on conflict (cycle, source) do update set slots_skipped = s.slots_skipped + 1;

-- name: tell_skip
-- Writes down why a cycle was not run, unless the last row of it says just that.
insert into relevo.worker_runs (id, cycle, source, slot_at, trigger, worker_id, started_at, finished_at, outcome, reason)
select %(run_id)s, %(cycle)s, %(source)s, %(slot_at)s, %(trigger)s, %(worker_id)s, %(started_at)s, clock_timestamp(), 'skipped', %(reason)s
 where %(always)s
    or not exists (
         select from (select r.outcome, r.reason from relevo.worker_runs r
                       where r.cycle = %(cycle)s and r.source = %(source)s
                       order by r.started_at desc, r.id desc limit 1) last
          where last.outcome = 'skipped' and last.reason = %(reason)s);

-- name: set_asleep
-- Records whether a cycle sleeps in this process, so that others know whether to wake it. The statement does not wait for the disk, because every
-- process repeats it after a crash of the server. It waits for a lock on the cycle's row no longer than any transaction does.
with unflushed as materialized (
  select set_config('synchronous_commit', 'off', true), set_config('lock_timeout', %(lock_ms)s::text, true)
), changed as materialized ( -- whoever holds the worker's row locked is not waited for: the next round says it again
  select w.worker_id from relevo.workers w
   where w.worker_id = %(worker_id)s and (%(cycle)s::text = any (w.asleep)) <> %(asleep)s
     for no key update skip locked
), here as (
  update relevo.workers w
     set asleep = case when %(asleep)s then array_append(w.asleep, %(cycle)s::text) else array_remove(w.asleep, %(cycle)s::text) end
    from changed c
   where w.worker_id = c.worker_id
)
insert into relevo.cycle_state as s (cycle, source, asleep)
select %(cycle)s::text, '', %(asleep)s from unflushed
on conflict (cycle, source) do update set asleep = excluded.asleep where s.asleep <> excluded.asleep;

-- name: mark_awake
-- Lets every transaction see that a cycle is awake, if its line says so.
select relevo.mark_awake(%(cycle)s);

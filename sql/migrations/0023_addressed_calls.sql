-- needs relevo 0.1.0
-- A wake-up is for two replicas that sleep, not for all of them.

alter table relevo.workers add column asleep text[] not null default '{}';

comment on column relevo.workers.asleep is 'The cycles that sleep there and may be called.';

-- Calls a cycle, but only while the fleet says that it sleeps: a NOTIFY in every commit would serialise them. Two of those that sleep are
-- called by name, so that one that just died does not matter; which ones, each transaction decides for itself, and many calls in it are one.
create or replace function relevo.wake(cycle_name text) returns void
  language sql volatile
  set search_path = pg_catalog, pg_temp
as $$
  with sleeping as materialized (
    select s.cycle from relevo.cycle_state s where s.cycle = cycle_name and s.source = '' and s.asleep
  ), called as materialized (
    select w.worker_id
      from sleeping s
      join relevo.workers w on s.cycle = any (w.asleep)
     where w.stopped_at is null and w.lost_at is null and w.stopping_at is null and w.wakeups = 'listening'
       and w.last_seen_at + w.lease_ms * interval '1 millisecond' > now()
     order by md5(w.worker_id || pg_current_xact_id()::text)
     limit 2
  )
  select pg_notify('relevo_wake', cycle_name || ' ' || c.worker_id) from called c
  union all
  select pg_notify('relevo_wake', s.cycle) from sleeping s where not exists (select from called) -- nobody is known to hear it: all are asked
$$;

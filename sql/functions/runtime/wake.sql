-- Wakes a cycle, if it sleeps.
create or replace function relevo.wake(cycle_name text) returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  called text[];
begin
  if coalesce(current_setting('relevo.wake', true), '') = 'off' then
    return; -- so wished, as by who is going to PREPARE TRANSACTION, where no NOTIFY may be
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    if not relevo.is_awake(cycle_name) then
      perform pg_notify('relevo_wake', cycle_name); -- which worker sleeps now is not to be seen from here: all are asked
    end if;
    return;
  end if;
  if not exists (select from relevo.cycle_state s where s.cycle = cycle_name and s.source = '' and s.asleep) then
    return;
  end if;
  called := array(
    select w.worker_id from relevo.workers w
     where cycle_name = any (w.asleep) and relevo.is_alive(w) and w.stopping_at is null and w.wakeups = 'listening'
     order by md5(w.worker_id || pg_current_xact_id()::text)
     limit 2);
  if called = '{}' then -- nobody is known to hear it: all are asked
    perform pg_notify('relevo_wake', cycle_name);
  else
    perform pg_notify('relevo_wake', cycle_name || ' ' || c.worker_id) from unnest(called) as c(worker_id);
  end if;
end
$$;

revoke all on function relevo.wake from public;

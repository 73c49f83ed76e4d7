-- Marks a cycle as awake if its line says so. The line is committed by then and locked here, so that no crash, rollback or worker that falls asleep
-- meanwhile leaves a cycle marked that sleeps. Nobody is waited for: a cycle without the mark is called once too often.
create or replace function relevo.mark_awake(cycle_name text) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform from relevo.cycle_state s where s.cycle = cycle_name and s.source = '' and not s.asleep for no key update skip locked;
  if found then
    perform setval(relevo.awake_marker(cycle_name), 1);
  end if;
end
$$;

revoke all on function relevo.mark_awake from public;

-- Takes the marks of cycles that are awake: a worker that starts may find marks that a backup brought back.
create or replace function relevo.forget_awake() returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform setval(relevo.awake_marker(c.cycle), 0) from (values ('fanout'), ('dispatch')) as c(cycle);
end
$$;

revoke all on function relevo.forget_awake from public;

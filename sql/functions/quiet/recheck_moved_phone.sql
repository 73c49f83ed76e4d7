-- Trigger: a phone in another time zone or project, or of another owner, may have other quiet hours: personal events that wait for it are looked at again.
create or replace function relevo.recheck_moved_phone() returns trigger
  language plpgsql
  set search_path to pg_catalog, pg_temp
as $$
begin
  if exists (select from relevo.quiet_profiles) then
    perform relevo.recheck_quiet(array[new.installation_id], new.owner);
  end if;
  return null;
end
$$;

revoke all on function relevo.recheck_moved_phone from public;

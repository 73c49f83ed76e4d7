-- Unregisters an installation, as at a log-out: nothing is sent to it until it registers again.
create or replace function relevo.unregister_installation(installation uuid) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  update relevo.device_installations set active = false, updated_at = now() where installation_id = installation and active;
  return found;
end
$$;

revoke all on function relevo.unregister_installation from public;

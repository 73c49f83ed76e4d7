-- Ends unsent what was made for an installation until now, because it was handled elsewhere, e.g. read in the app.
create or replace function relevo.complete_installation(installation uuid, reason text default null) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  update relevo.device_installations
     set handled_before = now(), handled_reason = left(nullif(btrim(complete_installation.reason), ''), 300), updated_at = now()
   where installation_id = installation;
  return found;
end
$$;

revoke all on function relevo.complete_installation from public;

-- Unregisters every installation of an owner, and returns how many.
create or replace function relevo.unregister_owner(of_owner text) returns int
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  many int;
begin
  perform relevo.check_owner(of_owner);
  perform from relevo.device_installations i where i.owner = of_owner order by i.installation_id for no key update;
  update relevo.device_installations set active = false, updated_at = now() where owner = of_owner and active;
  get diagnostics many = row_count;
  return many;
end
$$;

revoke all on function relevo.unregister_owner from public;

-- Registers one installation, and returns its id.
create or replace function relevo.register_installation(installation jsonb) returns uuid
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  return (relevo.register_many(jsonb_build_array(coalesce(installation, 'null'))))[1];
end
$$;

revoke all on function relevo.register_installation from public;

-- Grants a role the functions that an app calls, and no table.
create or replace function relevo.grant_app(role_name text) returns void language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  called text;
begin
  if not exists (select from pg_roles r where r.rolname = role_name) then
    raise exception using errcode = 'undefined_object', message = format('role %s does not exist', role_name);
  end if;
  execute format('grant usage on schema relevo to %I', role_name);
  foreach called in array relevo.app_functions() loop
    execute format('grant execute on function relevo.%s to %I', called, role_name);
  end loop;
end
$$;

revoke all on function relevo.grant_app from public;

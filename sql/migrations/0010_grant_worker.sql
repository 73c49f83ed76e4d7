-- needs relevo 0.1.0
-- Lets an administrator give a role what running Relevo takes, and nothing more.

-- To read and write rows and to call functions, those of later migrations included; it owns nothing and changes no schema.
create function relevo.grant_worker(role_name text) returns void language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  if not exists (select from pg_roles r where r.rolname = role_name) then
    raise exception using errcode = 'undefined_object', message = format('role %s does not exist', role_name);
  end if;
  execute format('grant usage on schema relevo to %I', role_name);
  execute format('grant select, insert, update, delete on all tables in schema relevo to %I', role_name);
  execute format('grant usage on all sequences in schema relevo to %I', role_name);
  execute format('grant execute on all functions in schema relevo to %I', role_name);
  execute format('alter default privileges in schema relevo grant select, insert, update, delete on tables to %I', role_name);
  execute format('alter default privileges in schema relevo grant usage on sequences to %I', role_name);
  execute format('alter default privileges in schema relevo grant execute on functions to %I', role_name);
  if to_regnamespace('relevo_archive') is not null then
    execute format('grant usage on schema relevo_archive to %I', role_name);
    execute format('grant select on all tables in schema relevo_archive to %I', role_name);
  end if;
end
$$;

revoke all on function relevo.grant_worker(text) from public;

-- Grants a role all that running the cycles and serving HTTP takes, and the schema into which it restores months.
create or replace function relevo.grant_worker(role_name text) returns void language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  if not exists (select from pg_roles r where r.rolname = role_name) then
    raise exception using errcode = 'undefined_object', message = format('role %s does not exist', role_name);
  end if;
  execute format('grant usage on schema relevo to %I', role_name);
  execute format('grant select, insert, update, delete on all tables in schema relevo to %I', role_name);
  if role_name <> (select t.tableowner from pg_tables t where t.schemaname = 'relevo' and t.tablename = 'audit_log') then
    -- it adds entries; finish_audit and prune_audit do the rest
    execute format('revoke insert, update, delete on relevo.audit_log from %I', role_name);
    execute format('grant insert (actor, face, action, target) on relevo.audit_log to %I', role_name);
  end if;
  execute format('grant usage on all sequences in schema relevo to %I', role_name);
  execute format('grant execute on all functions in schema relevo to %I', role_name);
  execute format('alter default privileges in schema relevo grant select, insert, update, delete on tables to %I', role_name);
  execute format('alter default privileges in schema relevo grant usage on sequences to %I', role_name);
  execute format('alter default privileges in schema relevo grant execute on functions to %I', role_name);
  if to_regnamespace('relevo_archive') is not null then
    execute format('grant usage on schema relevo_archive to %I', role_name);
    execute format('grant select on all tables in schema relevo_archive to %I', role_name);
  end if;
  -- An owner of the schema relevo alone may make no other one: then `relevo archive restore` says that this one is missing.
  if to_regnamespace('relevo_restored') is null and has_database_privilege(current_database(), 'create') then
    create schema relevo_restored;
  end if;
  if to_regnamespace('relevo_restored') is not null then
    execute format('grant usage, create on schema relevo_restored to %I', role_name);
  end if;
end
$$;

revoke all on function relevo.grant_worker from public;

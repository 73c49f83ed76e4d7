-- Returns the server's own identifier, or null where this role may not read it.
create or replace function relevo.system_identifier() returns text
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if not has_function_privilege('pg_catalog.pg_control_system()', 'execute') then
    return null;
  end if;
  return (select c.system_identifier::text from pg_control_system() c);
end
$$;

revoke all on function relevo.system_identifier from public;

-- Returns the installations of an owner, newest first, and whether each may receive pushes; no token among it.
create or replace function relevo.list_installations(of_owner text, most int default 100) returns jsonb
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  return relevo.list_installations_in_project(of_owner, null, most);
end
$$;

revoke all on function relevo.list_installations from public;

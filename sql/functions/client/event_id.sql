-- Returns the id of an event by its type and key, archived or not, or null: that without project, or else the only project's.
create or replace function relevo.event_id(of_type text, of_key text) returns bigint
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$ select relevo.event_id_in_project(of_type, of_key, null) $$;

revoke all on function relevo.event_id from public;

-- Returns whom an event of one project would reach.
create or replace function relevo.preview_in_project(event jsonb, most int, of_project text) returns jsonb
  language sql security definer
  set search_path = pg_catalog, pg_temp
as $$ select relevo.preview_draft(event, most, of_project) $$;

revoke all on function relevo.preview_in_project from public;

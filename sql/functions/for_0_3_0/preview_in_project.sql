-- preview of one project's event as 0.3.0 calls it.
create or replace function relevo.preview_in_project(event jsonb, most int, of_project text) returns jsonb
  language sql
as $$ select relevo.preview_draft(event, most, of_project) $$;

revoke all on function relevo.preview_in_project from public;

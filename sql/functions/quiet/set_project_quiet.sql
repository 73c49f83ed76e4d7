-- Sets the quiet hours of a project's phones that have no others; returns whether something changed. The reaper looks again at personal events that wait.
create or replace function relevo.set_project_quiet(of_project text, asked jsonb) returns boolean
  language plpgsql volatile
as $$
declare
  former int;
  profile int;
begin
  select d.quiet into former from relevo.quiet_defaults d where d.project = of_project for update;
  profile := relevo.asked_profile(asked, former, false);
  if profile is not distinct from former then
    return false;
  end if;
  if profile is null then
    delete from relevo.quiet_defaults d where d.project = of_project;
  else
    insert into relevo.quiet_defaults as d (project, quiet) values (of_project, profile) on conflict (project) do update set quiet = excluded.quiet;
  end if;
  insert into relevo.quiet_changes as c (project) values (of_project)
  on conflict (project) do update set changed_at = excluded.changed_at, look_at = excluded.look_at, chunk = 0;
  return true;
end
$$;

revoke all on function relevo.set_project_quiet from public;

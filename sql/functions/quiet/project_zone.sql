-- Returns the time zone that was set with a project's quiet hours; null if none was set, or this server does not know it.
create or replace function relevo.project_zone(of_project text) returns text language sql stable
  return (select relevo.known_zone(nullif(p.zone, '')) from relevo.quiet_defaults d join relevo.quiet_profiles p on p.id = d.quiet where d.project = of_project);

revoke all on function relevo.project_zone from public;

-- Returns the time zone of a phone's calendar: its own, else the one set with its quiet hours, else with its owner's, else with its project's; null if none is set.
create or replace function relevo.said_zone(timezone text, own int, of_owner int, of_project text) returns text language sql stable
  return coalesce(relevo.known_zone(timezone),
                  case when own is not null then (select relevo.known_zone(nullif(p.zone, '')) from relevo.quiet_profiles p where p.id = own) end,
                  case when of_owner is not null then (select relevo.known_zone(nullif(p.zone, '')) from relevo.quiet_profiles p where p.id = of_owner) end,
                  relevo.project_zone(of_project));

revoke all on function relevo.said_zone from public;

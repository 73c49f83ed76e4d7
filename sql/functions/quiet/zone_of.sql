-- Returns by which time zone a phone's calendar goes: its own, else the one said with its quiet hours or its owner's, else its project's, else UTC.
create or replace function relevo.zone_of(timezone text, own int, of_owner int, of_project text) returns text language sql stable
  return coalesce(relevo.known_zone(timezone),
                  case when coalesce(own, of_owner) is not null then (select relevo.known_zone(nullif(p.zone, '')) from relevo.quiet_profiles p where p.id = coalesce(own, of_owner)) end,
                  (select relevo.known_zone(nullif(p.zone, '')) from relevo.quiet_defaults d join relevo.quiet_profiles p on p.id = d.quiet where d.project = of_project), 'UTC');

revoke all on function relevo.zone_of from public;

-- Returns the time zone of a phone's calendar: the one that is set for it, else UTC.
create or replace function relevo.zone_of(timezone text, own int, of_owner int, of_project text) returns text language sql stable
  return coalesce(relevo.said_zone(timezone, own, of_owner, of_project), 'UTC');

revoke all on function relevo.zone_of from public;

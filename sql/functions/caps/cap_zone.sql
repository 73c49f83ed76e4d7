-- Returns the time zone for the caps of a phone's owner: that of the owner's first phone in the project that registered one, so that all phones of
-- the owner have the same hours, days and weeks. Else it returns the phone's zone.
create or replace function relevo.cap_zone(of_owner text, of_project text, timezone text, own int, of_owner_quiet int) returns text
  language sql stable
  return coalesce((select relevo.known_zone(i.timezone) from relevo.device_installations i
                    where i.owner = of_owner and i.project = of_project and i.timezone is not null order by i.seq limit 1),
                  relevo.zone_of(timezone, case when of_owner is null then own end, of_owner_quiet, of_project));

revoke all on function relevo.cap_zone from public;

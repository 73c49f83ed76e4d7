-- Returns the time zone in which the digests of a phone close: as that of its quiet hours is found.
create or replace function relevo.digest_zone(i relevo.device_installations) returns text
  language sql stable
  return relevo.zone_of(i.timezone, i.quiet, i.owner_quiet, i.project);

revoke all on function relevo.digest_zone from public;

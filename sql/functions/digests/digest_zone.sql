-- Returns the time zone in which the digests of a phone close: the phone's own, else UTC.
create or replace function relevo.digest_zone(i relevo.device_installations) returns text
  language sql stable
  return coalesce(i.timezone, 'UTC');

revoke all on function relevo.digest_zone from public;

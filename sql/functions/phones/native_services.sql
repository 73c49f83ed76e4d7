-- Returns the push services that come with Relevo and are spoken to directly: a phone may name each of them, served or not.
create or replace function relevo.native_services() returns text[] language sql immutable parallel safe
return array[
  -- push services: written by make docs
  'fcm', 'apns', 'webpush', 'huawei'
  -- /written
];

revoke all on function relevo.native_services from public;

-- Returns the usual platform of the phones of a push service that is spoken to directly, `unknown` where there are several; null for all other
-- providers. It is inlined.
create or replace function relevo.native_platform(provider text) returns text language sql immutable parallel safe
return case provider
  -- platforms: written by make docs
  when 'fcm' then 'unknown'
  when 'apns' then 'ios'
  when 'webpush' then 'web'
  when 'huawei' then 'android'
  -- /written
end;

revoke all on function relevo.native_platform from public;

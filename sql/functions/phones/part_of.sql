-- Returns which of its provider's services a phone's pushes go to; empty where all go to the same.
create or replace function relevo.part_of(provider text, platform text, environment text, token text) returns text language sql immutable parallel safe
return coalesce(case provider
  -- parts: written by make docs
  when 'fcm' then platform
  when 'apns' then environment
  when 'webpush' then relevo.push_host(token)
  -- /written
end, '');

revoke all on function relevo.part_of from public;

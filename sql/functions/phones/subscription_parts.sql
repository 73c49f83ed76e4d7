-- Returns the endpoint, the key p256dh and the key auth of a Web Push subscription in JSON; null for what is none. Keys are written alike.
create or replace function relevo.subscription_parts(subscription text) returns text[]
  language plpgsql immutable
as $$
declare
  given jsonb;
  parts text[];
begin
  given := subscription;
  parts := array[given ->> 'endpoint', rtrim(translate(given #>> '{keys,p256dh}', '+/', '-_'), '='), rtrim(translate(given #>> '{keys,auth}', '+/', '-_'), '=')];
  return case when array_position(parts, null) is null then parts end;
exception when data_exception or program_limit_exceeded then -- it is no JSON, or nothing that PostgreSQL can keep
  return null;
end
$$;

revoke all on function relevo.subscription_parts from public;

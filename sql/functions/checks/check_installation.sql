-- Refuses an installation with the first thing that is wrong with it, by name; one without a provider keeps what it had.
create or replace function relevo.check_installation(installation jsonb) returns void language plpgsql stable
as $$
declare
  wrong text;
  given_token text := installation ->> 'token';
  served text;
begin
  if jsonb_typeof(installation) is distinct from 'object' then
    perform relevo.refuse('an installation must be a JSON object');
  end if;
  select string_agg(k, ', ' order by k) into wrong from jsonb_object_keys(installation) as k
   where k <> all (array['installation_id', 'token', 'provider', 'project', 'platform', 'locale', 'owner', 'push_capable', 'permission', 'opt_outs']);
  if wrong is not null then
    perform relevo.refuse(format('an installation has no field %s', wrong));
  end if;
  perform relevo.check_texts(installation, '{"installation_id": 36, "provider": 40, "project": 200, "locale": 35, "owner": 200}');
  perform relevo.check_boolean(installation, 'push_capable');
  perform relevo.check_list(installation, 'opt_outs', 100, 100);
  if coalesce(installation ->> 'platform', 'unknown') <> all (array['ios', 'android', 'unknown']) then
    perform relevo.refuse('platform must be ios, android or unknown');
  end if;
  if coalesce(installation ->> 'permission', 'granted') <> all (array['granted', 'denied', 'undetermined']) then
    perform relevo.refuse('permission must be granted, denied or undetermined');
  end if;
  if installation ->> 'installation_id' !~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then
    perform relevo.refuse('installation_id must be a UUID');
  end if;
  served := coalesce(installation ->> 'provider',
    (select i.provider from relevo.device_installations i where i.installation_id = (installation ->> 'installation_id')::uuid),
    case when installation ->> 'installation_id' is null then (select i.provider from relevo.device_installations i
      where i.token = given_token and i.owner is not distinct from installation ->> 'owner' and not i.for_news) end, 'expo');
  if not exists (select from relevo.providers p where p.provider = served) then
    perform relevo.refuse(format('provider must be one of %s, got %s',
      (select string_agg(p.provider, ', ' order by p.provider) from relevo.providers p), served));
  end if;
  if served = 'expo'
     and given_token !~ '^(Expo(nent)?PushToken\[[^][[:space:]]{1,150}\]|[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})$' then
    perform relevo.refuse('token must look like ExponentPushToken[...], ExpoPushToken[...] or a UUID');
  end if;
  if length(given_token) not between 1 and 200 or given_token ~ '[[:cntrl:]]' then
    perform relevo.refuse('token must be text of 1 to 200 characters');
  end if;
end
$$;

revoke all on function relevo.check_installation from public;

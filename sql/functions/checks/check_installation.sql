-- Refuses an installation with the first thing that is wrong with it, by name; one without a provider keeps what it had.
create or replace function relevo.check_installation(installation jsonb) returns void language plpgsql stable
as $$
declare
  wrong text;
  served text;
begin
  if jsonb_typeof(installation) is distinct from 'object' then
    perform relevo.refuse('an installation must be a JSON object');
  end if;
  select string_agg(k, ', ' order by k) into wrong from jsonb_object_keys(installation) as k
   where k <> all (array['installation_id', 'token', 'provider', 'project', 'platform', 'locale', 'owner', 'push_capable', 'permission', 'opt_outs', 'environment',
                         'timezone', 'attributes']);
  if wrong is not null then
    perform relevo.refuse(format('an installation has no field %s', wrong));
  end if;
  perform relevo.check_texts(installation, '{"installation_id": 36, "provider": 40, "project": 200, "locale": 35, "owner": 200}');
  perform relevo.check_boolean(installation, 'push_capable');
  perform relevo.check_list(installation, 'opt_outs', 100, 100);
  if coalesce(installation ->> 'platform', 'unknown') <> all (array['ios', 'android', 'web', 'unknown']) then
    perform relevo.refuse('platform must be ios, android, web or unknown');
  end if;
  if coalesce(installation ->> 'permission', 'granted') <> all (array['granted', 'denied', 'undetermined']) then
    perform relevo.refuse('permission must be granted, denied or undetermined');
  end if;
  if installation ->> 'installation_id' !~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then
    perform relevo.refuse('installation_id must be a UUID');
  end if;
  perform relevo.check_timezone(installation -> 'timezone');
  if coalesce(installation -> 'attributes', 'null') <> 'null' then
    perform relevo.check_attributes(installation -> 'attributes', 'attributes');
  end if;
  served := relevo.provider_of(installation);
  if relevo.native_platform(served) is null and not exists (select from relevo.providers p where p.provider = served) then
    perform relevo.refuse(format('provider must be one of %s, got %s',
      (select string_agg(p.provider, ', ' order by p.provider)
         from (select r.provider from relevo.providers r union select unnest(relevo.native_services())) as p), served));
  end if;
  wrong := case when served <> 'expo' and jsonb_typeof(installation -> 'token') not in ('string', 'null')
                then 'token must be text of 1 to 4096 bytes without control characters'
                else relevo.token_complaint(served, installation ->> 'token') end;
  if wrong is not null then
    perform relevo.refuse(wrong);
  end if;
  if relevo.native_platform(served) is not null or installation ?| array['environment', 'provider'] then
    perform relevo.check_service(installation, served);
  end if;
end
$$;

revoke all on function relevo.check_installation from public;

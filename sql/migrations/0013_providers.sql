-- needs relevo 0.1.0
-- Providers by name: a delivery goes to the push service its installation names; one that nobody serves is refused at the door.

create table relevo.providers (
  provider text primary key check (provider ~ '^[a-z][a-z0-9-]{0,39}$')
);

comment on table relevo.providers is 'The push services by name that this fleet serves, or has served.';

insert into relevo.providers values ('expo'), ('webhook');

-- The name under which a provider's project has its rate, its breaker and its connections: Expo's projects have their own.
create function relevo.sending_project(provider text, project text) returns text language sql immutable parallel safe
return case when provider = 'expo' then project else left(provider || '::' || project, 200) end;

revoke all on function relevo.sending_project(text, text) from public;

-- Registers an installation: takes the token over from whoever had it, counts its changes, switches pushes on again; what is not
-- told of a known one stays as it is.
create or replace function relevo.register_installation(installation jsonb) returns uuid
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  wrong text;
  id uuid;
  known boolean;
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
  begin
    id := coalesce((installation ->> 'installation_id')::uuid, gen_random_uuid());
  exception when others then
    perform relevo.refuse('installation_id must be a UUID');
  end;
  served := coalesce(installation ->> 'provider', (select i.provider from relevo.device_installations i where i.installation_id = id), 'expo');
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
  -- two phones that claim one token at once take turns here, and then two that swap theirs
  perform pg_advisory_xact_lock(hashtextextended('relevo.token:' || given_token, 0)) where given_token is not null;
  perform from relevo.device_installations i where i.installation_id = id or i.token = given_token order by i.installation_id for update;
  known := exists (select from relevo.device_installations i where i.installation_id = id);
  update relevo.device_installations
     set token = null, token_version = token_version + 1, invalidated_at = now(), invalid_reason = 'token_moved', updated_at = now()
   where token = given_token and installation_id <> id;
  insert into relevo.device_installations as i (installation_id, token, provider, project, platform, locale, owner, push_capable, permission, opt_outs)
  values (id, given_token, coalesce(installation ->> 'provider', 'expo'), coalesce(installation ->> 'project', 'default'),
          coalesce(installation ->> 'platform', 'unknown'), installation ->> 'locale', installation ->> 'owner',
          coalesce((installation ->> 'push_capable')::boolean, true), coalesce(installation ->> 'permission', 'granted'),
          array(select jsonb_array_elements_text(coalesce(nullif(installation -> 'opt_outs', 'null'), '[]'))))
  on conflict (installation_id) do update
     set token = case when installation ? 'token' then excluded.token else i.token end,
         token_version = i.token_version + (installation ? 'token' and i.token is distinct from excluded.token)::int,
         provider = case when installation ? 'provider' then excluded.provider else i.provider end,
         project = case when installation ? 'project' then excluded.project else i.project end,
         platform = case when installation ? 'platform' then excluded.platform else i.platform end,
         locale = case when installation ? 'locale' then excluded.locale else i.locale end,
         owner = case when installation ? 'owner' then excluded.owner else i.owner end,
         opt_outs = case when installation ? 'opt_outs' then excluded.opt_outs else i.opt_outs end,
         push_capable = excluded.push_capable, permission = excluded.permission,
         active = true, updated_at = now(),
         invalidated_at = case when installation ? 'token' then null else i.invalidated_at end,
         invalid_reason = case when installation ? 'token' then null else i.invalid_reason end;
  -- only the first time: whoever removed it since wants no pushes, however often the app registers
  insert into relevo.notification_preferences (installation_id, name) select id, 'default' where not known on conflict do nothing;
  return id;
end
$$;

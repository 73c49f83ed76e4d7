-- Sets one named preference of an installation; null is a wildcard, and a preference of null removes it.
create or replace function relevo.set_preference(installation uuid, preference_name text, preference jsonb) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  wrong text;
begin
  if preference is null or preference = 'null' then
    delete from relevo.notification_preferences where installation_id = installation and name = preference_name;
    return found;
  end if;
  if jsonb_typeof(preference) <> 'object' then
    perform relevo.refuse('a preference must be a JSON object');
  end if;
  select string_agg(k, ', ' order by k) into wrong from jsonb_object_keys(preference) as k
   where k <> all (array['enabled', 'topics', 'rubro_prefix', 'tipo', 'region', 'monto_min', 'monto_max', 'moneda', 'keywords', 'delivery']);
  if wrong is not null then
    perform relevo.refuse(format('a preference has no field %s', wrong));
  end if;
  perform relevo.check_texts(jsonb_build_object('name', coalesce(preference_name, '')), '{"name": 100}');
  perform relevo.check_texts(preference, '{"tipo": 100, "region": 200}');
  perform relevo.check_boolean(preference, 'enabled');
  perform relevo.check_number(preference, 'monto_min', 0, 999999999999999999);
  perform relevo.check_number(preference, 'monto_max', 0, 999999999999999999);
  perform relevo.check_list(preference, 'keywords', 20, 100);
  perform relevo.check_list(preference, 'topics', 100, 100);
  if (preference ->> 'monto_min')::numeric > (preference ->> 'monto_max')::numeric then
    perform relevo.refuse('monto_min must not be above monto_max');
  end if;
  if coalesce(preference ->> 'moneda', 'CLP') !~ '^[A-Z]{3}$' then
    perform relevo.refuse('moneda must be a currency of three capital letters, such as CLP');
  end if;
  if coalesce(preference ->> 'rubro_prefix', '0') !~ '^[0-9A-Za-z-]{1,20}$' then
    perform relevo.refuse('rubro_prefix must be the first 1 to 20 letters, digits or dashes of a code');
  end if;
  if coalesce(preference ->> 'delivery', 'now') !~ '^(now|hourly|(daily|weekly (mon|tue|wed|thu|fri|sat|sun)) ([01][0-9]|2[0-3]):[0-5][0-9])$' then
    perform relevo.refuse('delivery must be now, hourly, daily HH:MM or weekly DAY HH:MM, such as daily 08:00 or weekly mon 08:00');
  end if;
  if not exists (select from relevo.device_installations i where i.installation_id = installation) then
    perform relevo.refuse(format('there is no installation %s; register it first', installation));
  end if;
  insert into relevo.notification_preferences (installation_id, name, enabled, topics, rubro_prefix, tipo, region, monto_min, monto_max, moneda,
                                               keywords, delivery)
  select installation, preference_name, coalesce(r.enabled, true), nullif(r.topics, '{}'), r.rubro_prefix, r.tipo, r.region, r.monto_min, r.monto_max,
         coalesce(r.moneda, case when r.monto_min is not null or r.monto_max is not null then 'CLP' end), nullif(r.keywords, '{}'), nullif(r.delivery, 'now')
    from jsonb_to_record(preference) as r(enabled boolean, topics text[], rubro_prefix text, tipo text, region text, monto_min numeric,
                                          monto_max numeric, moneda text, keywords text[], delivery text)
  on conflict (installation_id, name) do update
     set enabled = excluded.enabled, topics = excluded.topics, rubro_prefix = excluded.rubro_prefix, tipo = excluded.tipo, region = excluded.region,
         monto_min = excluded.monto_min, monto_max = excluded.monto_max, moneda = excluded.moneda, keywords = excluded.keywords, delivery = excluded.delivery,
         updated_at = now();
  return true;
end
$$;

revoke all on function relevo.set_preference from public;

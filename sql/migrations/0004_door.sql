-- needs relevo 0.1.0
-- The app's own door: functions that any language, ORM or trigger can call inside its own transaction.

alter table relevo.device_installations add column handled_before timestamptz;

-- Refuses an argument in words; a function, so that checks read as one line each.
create function relevo.refuse(complaint text) returns void language plpgsql
  set search_path = pg_catalog, pg_temp
as $$ begin raise exception using errcode = 'invalid_parameter_value', message = complaint; end $$;

-- The checks run in the search path of the door that calls them; setting it anew for each would be a third of their cost.

-- Complains about the first field that is not text of a fitting length, by name; limits are like {"title": 500}.
create function relevo.check_texts(given jsonb, limits jsonb, fewest int default 1, place text default '') returns void
  language plpgsql immutable
as $$
declare
  wrong text;
begin
  for wrong in select l.key from jsonb_each_text(limits) as l(key, most)
                where coalesce(given -> l.key, 'null') <> 'null'
                  and (jsonb_typeof(given -> l.key) <> 'string' or length(given ->> l.key) not between fewest and l.most::int) loop
    perform relevo.refuse(format('%s%s must be text of %s to %s characters', place, wrong, fewest, limits ->> wrong));
  end loop;
end
$$;

-- Complains about a field that is not a number within bounds, or not a whole one where it must be, by name.
create function relevo.check_number(given jsonb, name text, low numeric, high numeric, whole boolean default false, place text default '')
  returns void language plpgsql immutable
as $$
begin
  if coalesce(given -> name, 'null') = 'null' then
    return;
  end if;
  if jsonb_typeof(given -> name) = 'number' then
    if (given ->> name)::numeric between low and high and (not whole or (given ->> name)::numeric % 1 = 0) then
      return;
    end if;
  end if;
  perform relevo.refuse(format('%s%s must be a %snumber between %s and %s', place, name, case when whole then 'whole ' else '' end, low, high));
end
$$;

-- Complains about a field that is neither true nor false, by name.
create function relevo.check_boolean(given jsonb, name text) returns void language plpgsql immutable
as $$
begin
  if coalesce(jsonb_typeof(given -> name), 'null') not in ('null', 'boolean') then
    perform relevo.refuse(format('%s must be true or false', name));
  end if;
end
$$;

-- Complains about a field that is not a list of texts of a fitting length, by name.
create function relevo.check_list(given jsonb, name text, most int, chars int, place text default '') returns void
  language plpgsql immutable
as $$
declare
  list jsonb := coalesce(given -> name, 'null');
begin
  if list = 'null' then
    return;
  end if;
  if jsonb_typeof(list) = 'array' and jsonb_array_length(list) <= most then
    if not exists (select from jsonb_array_elements(list) as l(each)
                    where jsonb_typeof(l.each) <> 'string' or length(l.each #>> '{}') not between 1 and chars) then
      return;
    end if;
  end if;
  perform relevo.refuse(format('%s%s must be a list of at most %s texts of 1 to %s characters', place, name, most, chars));
end
$$;

-- A time of an event, or a complaint that names it; a time without its zone would mean something else in every session.
create function relevo.event_time(event jsonb, name text) returns timestamptz language plpgsql stable
as $$
declare
  given timestamptz;
begin
  if jsonb_typeof(event -> name) is not distinct from 'null' or not event ? name then
    return null;
  end if;
  begin
    given := (event ->> name)::timestamptz;
  exception when others then
    given := null;
  end;
  if given is null or event ->> name !~* '^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d(:?\d\d)?)$' then
    perform relevo.refuse(format('%s must be a time with its zone, such as 2026-11-15T09:00:00Z, got %s', name, left(event ->> name, 60)));
  end if;
  if given not between '2000-01-01Z' and '2200-01-01Z' then
    perform relevo.refuse(format('%s must lie between the years 2000 and 2200, got %s', name, given));
  end if;
  return given;
end
$$;

-- The push of an event as it will be weighed: with everything that a delivery adds to its data.
create function relevo.push_bytes(title text, body text, data jsonb, push jsonb) returns int language sql immutable
  return octet_length((push || jsonb_build_object('to', repeat('x', 64), 'title', title, 'body', body, 'ttl', 2419200, 'priority', 'high',
    'sound', 'default', 'tag', repeat('x', 40), 'collapseId', repeat('x', 40), 'data', data || jsonb_build_object(
      'notificationEventId', 9223372036854775807, 'notificationDeliveryId', 9223372036854775807,
      'installationId', '00000000-0000-0000-0000-000000000000', 'pushProvider', 'expo')))::text);

-- Checks an event as given, and complains about the first thing that is wrong, by name.
create function relevo.check_event(event jsonb) returns void language plpgsql stable
as $$
declare
  wrong text;
  matching jsonb := coalesce(nullif(event -> 'matching', 'null'), '{}');
begin
  if jsonb_typeof(event) is distinct from 'object' then
    perform relevo.refuse('an event must be a JSON object');
  end if;
  select string_agg(k, ', ' order by k) into wrong from jsonb_object_keys(event) as k
   where k <> all (array['type', 'key', 'title', 'body', 'data', 'push', 'audience', 'installations', 'matching', 'category', 'lane',
                         'at_most_once', 'scheduled_at', 'deadline_at', 'ttl_s', 'licitacion_id']);
  if wrong is not null then
    perform relevo.refuse(format('an event has no field %s', wrong));
  end if;
  for wrong in select k from unnest(array['type', 'key', 'title']) as k where coalesce(btrim(event ->> k), '') = '' loop
    perform relevo.refuse(format('%s must be given', wrong));
  end loop;
  perform relevo.check_texts(event, '{"type": 100, "key": 300, "title": 500, "category": 100}');
  perform relevo.check_texts(event, '{"body": 2000}', 0);
  for wrong in select k from unnest(array['data', 'push', 'matching']) as k
                where event ? k and event -> k <> 'null' and jsonb_typeof(event -> k) <> 'object' loop
    perform relevo.refuse(format('%s must be a JSON object', wrong));
  end loop;
  if coalesce(event ->> 'audience', '') <> all (array['everyone', 'installations', 'matching']) then
    perform relevo.refuse('audience must be everyone, installations or matching');
  end if;
  if (event ->> 'audience' = 'installations') <> (coalesce(jsonb_typeof(event -> 'installations'), 'null') = 'array') then
    perform relevo.refuse('installations must be a list exactly when audience is installations');
  end if;
  if event ->> 'audience' = 'installations' and jsonb_array_length(event -> 'installations') not between 1 and 100000 then
    perform relevo.refuse('installations must name between 1 and 100000 of them');
  end if;
  select i.each into wrong from jsonb_array_elements_text(coalesce(nullif(event -> 'installations', 'null'), '[]')) as i(each)
   where coalesce(i.each, '') !~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' limit 1;
  if found then
    perform relevo.refuse(format('installations must be UUIDs, got %s', coalesce(left(wrong, 60), 'null')));
  end if;
  if event ->> 'audience' = 'matching' and coalesce(jsonb_typeof(event -> 'matching'), 'null') <> 'object' then
    perform relevo.refuse('matching must say what the event is about when audience is matching');
  end if;
  select string_agg(k, ', ' order by k) into wrong from jsonb_object_keys(matching) as k
   where k <> all (array['rubros', 'region', 'tipo', 'monto', 'moneda', 'text']);
  if wrong is not null then
    perform relevo.refuse(format('matching has no field %s', wrong));
  end if;
  perform relevo.check_list(matching, 'rubros', 2000, 100, 'matching.');
  perform relevo.check_texts(matching, '{"region": 200, "tipo": 100, "text": 20000}', 0, 'matching.');
  perform relevo.check_number(matching, 'monto', 0, 999999999999999999, place => 'matching.');
  if coalesce(nullif(matching -> 'moneda', 'null') #>> '{}', 'CLP') !~ '^[A-Z]{3}$' then
    perform relevo.refuse('matching.moneda must be a currency of three capital letters, such as CLP');
  end if;
  if coalesce(event ->> 'lane', 'bulk') <> all (array['urgent', 'bulk']) then
    perform relevo.refuse('lane must be urgent or bulk');
  end if;
  perform relevo.check_boolean(event, 'at_most_once');
  perform relevo.check_number(event, 'ttl_s', 1, 2419200, whole => true);
  perform relevo.check_number(event, 'licitacion_id', 1, 9223372036854775807, whole => true);
  if relevo.push_bytes(event ->> 'title', coalesce(event ->> 'body', ''), coalesce(nullif(event -> 'data', 'null'), '{}'),
                       coalesce(nullif(event -> 'push', 'null'), '{}')) > 4096 then
    perform relevo.refuse('title, body, data and push together must fit into 4096 bytes once rendered');
  end if;
end
$$;

-- Enqueues events, the app's commit decides; one row each, in order: its id, whether it is new, whether an old one says the same.
create function relevo.enqueue_many(events jsonb) returns table (event_id bigint, created boolean, same_content boolean)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  event jsonb;
  kind relevo.event_types;
  hash text;
  at timestamptz;
  until timestamptz;
  made boolean := false;
begin
  if jsonb_typeof(events) is distinct from 'array' or jsonb_array_length(events) > 100000 then
    perform relevo.refuse('events must be a list of at most 100000 events');
  end if;
  for event in select e from jsonb_array_elements(events) as e loop
    perform relevo.check_event(event);
    hash := encode(sha256(convert_to(jsonb_strip_nulls(event)::text, 'UTF8')), 'hex');
    kind := null;
    select t.* into kind from relevo.event_types t where t.event_type = event ->> 'type';
    at := coalesce(relevo.event_time(event, 'scheduled_at'), now());
    until := coalesce(relevo.event_time(event, 'deadline_at'), at + coalesce((event ->> 'ttl_s')::numeric::int, kind.ttl_s) * interval '1 second');
    loop
      select n.id, n.content_hash = hash into event_id, same_content from relevo.notification_events n
       where n.event_type = event ->> 'type' and n.event_key = event ->> 'key';
      created := not found;
      exit when not created;
      if until <= greatest(at, now()) then
        perform relevo.refuse(format('deadline_at must lie after now and after scheduled_at, got %s', until));
      end if;
      insert into relevo.notification_events as n (event_type, event_key, licitacion_id, title, body, data, push, audience, category,
        lane, at_most_once, scheduled_at, deadline_at, match_rubros, match_region, match_tipo, match_monto, match_moneda, match_words,
        content_hash)
      values (event ->> 'type', event ->> 'key', (event ->> 'licitacion_id')::numeric::bigint, event ->> 'title', coalesce(event ->> 'body', ''),
        coalesce(nullif(event -> 'data', 'null'), '{}'), coalesce(nullif(event -> 'push', 'null'), '{}'),
        event ->> 'audience', event ->> 'category',
        coalesce(event ->> 'lane', kind.lane, 'bulk'), coalesce((event ->> 'at_most_once')::boolean, kind.at_most_once, false), at, until,
        array(select jsonb_array_elements_text(coalesce(nullif(event #> '{matching,rubros}', 'null'), '[]'))),
        relevo.region_key(event #>> '{matching,region}'), event #>> '{matching,tipo}',
        (event #>> '{matching,monto}')::numeric, event #>> '{matching,moneda}', relevo.words(event #>> '{matching,text}'), hash)
      on conflict (event_type, event_key) do nothing
      returning n.id into event_id;
      exit when found;
      -- somebody else was faster; only a new statement sees whose it is
    end loop;
    if created then
      made := true;
      same_content := true;
      insert into relevo.event_audience (event_id, installation_id)
      select enqueue_many.event_id, i::uuid from jsonb_array_elements_text(coalesce(nullif(event -> 'installations', 'null'), '[]')) as i
      on conflict do nothing;
    end if;
    return next;
  end loop;
  if made then
    perform relevo.wake('fanout');
  end if;
end
$$;

create function relevo.enqueue(event jsonb) returns table (event_id bigint, created boolean, same_content boolean)
  language sql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$ select * from relevo.enqueue_many(jsonb_build_array(event)) $$;

-- Ends an event before it is through: nothing of it is sent any more. It touches the event's row only; workers end its deliveries.
create function relevo.end_event(id_of_event bigint, ending text, reason text) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  update relevo.notification_events
     set state = ending, ended_at = now(), end_reason = left(nullif(btrim(reason), ''), 300), updated_at = now()
   where id = id_of_event and ended_at is null;
  if not found then
    return false;
  end if;
  perform relevo.wake('fanout');
  return true;
end
$$;

create function relevo.cancel(event_id bigint, reason text default null) returns boolean
  language sql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$ select relevo.end_event(event_id, 'cancelled', reason) $$;

create function relevo.complete(event_id bigint, reason text default null) returns boolean
  language sql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$ select relevo.end_event(event_id, 'completed', reason) $$;

-- Handled elsewhere, e.g. read in the app: what was made for this installation until now ends unsent.
create function relevo.complete_installation(installation uuid) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  update relevo.device_installations set handled_before = now(), updated_at = now() where installation_id = installation;
  return found;
end
$$;

-- Deletes events with their deliveries and says how many events there were; claims in flight find nothing.
create function relevo.delete_events(event_ids bigint[]) returns int
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  gone relevo.notification_events;
  deleted int := 0;
begin
  for gone in delete from relevo.notification_events where id = any (event_ids) returning * loop
    -- locked in the order of every writer, so that a settle under way and this do not wait for each other
    perform from relevo.notification_deliveries d
     where d.event_day = gone.event_day and d.notification_event_id = gone.id order by d.event_day, d.id for update;
    delete from relevo.notification_deliveries where event_day = gone.event_day and notification_event_id = gone.id;
    -- the changes first: a reaper that is folding them is waited for, and its sums go next
    delete from relevo.event_progress_deltas where event_id = gone.id;
    delete from relevo.event_progress where event_id = gone.id;
    deleted := deleted + 1;
  end loop;
  return deleted;
end
$$;

-- One event and how far its deliveries are, without counting them.
create function relevo.get_event(id_of_event bigint) returns jsonb
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object('id', e.id, 'type', e.event_type, 'key', e.event_key, 'state', e.state, 'title', e.title, 'body', e.body,
           'audience', e.audience, 'category', e.category, 'lane', e.lane, 'at_most_once', e.at_most_once,
           'created_at', e.created_at, 'scheduled_at', e.scheduled_at, 'deadline_at', e.deadline_at,
           'fanout_started_at', e.fanout_started_at, 'fanout_finished_at', e.fanout_finished_at,
           'ended_at', e.ended_at, 'end_reason', e.end_reason, 'targets_selected', e.targets_selected,
           'deliveries_created', e.deliveries_created, 'licitacion_id', e.licitacion_id,
           'deliveries', coalesce((select jsonb_object_agg(s.status, s.n) from (
              select p.status, sum(p.deliveries) as n from (
                select f.status, f.deliveries from relevo.event_progress f where f.event_id = e.id
                union all
                select d.status, d.deliveries from relevo.event_progress_deltas d where d.event_id = e.id) p
               group by p.status having sum(p.deliveries) <> 0) s), '{}'))
    from relevo.notification_events e where e.id = id_of_event
$$;

-- Registers an installation: takes the token over from whoever had it, counts its changes, switches pushes on again; what is not
-- told of a known one stays as it is.
create function relevo.register_installation(installation jsonb) returns uuid
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  wrong text;
  id uuid;
  known boolean;
  given_token text := installation ->> 'token';
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
  if given_token !~ '^(Expo(nent)?PushToken\[[^][[:space:]]{1,150}\]|[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})$' then
    perform relevo.refuse('token must look like ExponentPushToken[...], ExpoPushToken[...] or a UUID');
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

-- Sets one named preference of an installation; null is a wildcard, and a preference of null removes it.
create function relevo.set_preference(installation uuid, preference_name text, preference jsonb) returns boolean
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
   where k <> all (array['enabled', 'rubro_prefix', 'tipo', 'region', 'monto_min', 'monto_max', 'moneda', 'keywords']);
  if wrong is not null then
    perform relevo.refuse(format('a preference has no field %s', wrong));
  end if;
  perform relevo.check_texts(jsonb_build_object('name', coalesce(preference_name, '')), '{"name": 100}');
  perform relevo.check_texts(preference, '{"tipo": 100, "region": 200}');
  perform relevo.check_boolean(preference, 'enabled');
  perform relevo.check_number(preference, 'monto_min', 0, 999999999999999999);
  perform relevo.check_number(preference, 'monto_max', 0, 999999999999999999);
  perform relevo.check_list(preference, 'keywords', 20, 100);
  if (preference ->> 'monto_min')::numeric > (preference ->> 'monto_max')::numeric then
    perform relevo.refuse('monto_min must not be above monto_max');
  end if;
  if coalesce(preference ->> 'moneda', 'CLP') !~ '^[A-Z]{3}$' then
    perform relevo.refuse('moneda must be a currency of three capital letters, such as CLP');
  end if;
  if coalesce(preference ->> 'rubro_prefix', '0') !~ '^[0-9A-Za-z-]{1,20}$' then
    perform relevo.refuse('rubro_prefix must be the first 1 to 20 letters, digits or dashes of a code');
  end if;
  if not exists (select from relevo.device_installations i where i.installation_id = installation) then
    perform relevo.refuse(format('there is no installation %s; register it first', installation));
  end if;
  insert into relevo.notification_preferences (installation_id, name, enabled, rubro_prefix, tipo, region, monto_min, monto_max, moneda, keywords)
  select installation, preference_name, coalesce(r.enabled, true), r.rubro_prefix, r.tipo, r.region, r.monto_min, r.monto_max,
         coalesce(r.moneda, case when r.monto_min is not null or r.monto_max is not null then 'CLP' end), nullif(r.keywords, '{}')
    from jsonb_to_record(preference) as r(enabled boolean, rubro_prefix text, tipo text, region text, monto_min numeric, monto_max numeric,
                                          moneda text, keywords text[])
  on conflict (installation_id, name) do update
     set enabled = excluded.enabled, rubro_prefix = excluded.rubro_prefix, tipo = excluded.tipo, region = excluded.region,
         monto_min = excluded.monto_min, monto_max = excluded.monto_max, moneda = excluded.moneda, keywords = excluded.keywords,
         updated_at = now();
  return true;
end
$$;

-- Lets a role use the door: enqueue and its kin, registration, nothing of the tables.
create function relevo.grant_door(role_name text) returns void language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  door text;
begin
  if not exists (select from pg_roles r where r.rolname = role_name) then
    raise exception using errcode = 'undefined_object', message = format('role %s does not exist', role_name);
  end if;
  execute format('grant usage on schema relevo to %I', role_name);
  foreach door in array array['enqueue(jsonb)', 'enqueue_many(jsonb)', 'cancel(bigint, text)', 'complete(bigint, text)',
      'complete_installation(uuid)', 'delete_events(bigint[])', 'get_event(bigint)', 'register_installation(jsonb)', 'set_preference(uuid, text, jsonb)'] loop
    execute format('grant execute on function relevo.%s to %I', door, role_name);
  end loop;
end
$$;

do $$
declare
  f regprocedure;
begin
  for f in select p.oid from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = 'relevo' loop
    execute format('revoke all on function %s from public', f);
  end loop;
end
$$;

-- needs relevo 0.2.0
-- More verbs of the door: many registrations at once, an event's audience before it is sent, why a phone gets it or not, and a scheduled
-- event changed before it starts.

-- Complains about an installation as given, by name; one without a provider keeps what it had.
create function relevo.check_installation(installation jsonb) returns void language plpgsql stable
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

-- Tells of the usual installation that nothing is wrong with it, in one expression; of any other check_installation finds the words.
create function relevo.is_plain_installation(installation jsonb) returns boolean language plpgsql immutable
as $$
begin
  return jsonb_typeof(installation) = 'object'
     and installation - array['installation_id', 'token', 'project', 'platform', 'locale', 'owner', 'push_capable', 'permission'] = '{}'
     and jsonb_typeof(installation -> 'token') = 'string' and installation ->> 'token' ~ '^Expo(nent)?PushToken\[[^][[:space:]]{1,150}\]$'
     and case when installation ->> 'installation_id' is null then true
              else installation ->> 'installation_id' ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' end
     and coalesce(jsonb_typeof(installation -> 'project') = 'string' and length(installation ->> 'project') between 1 and 200, true)
     and coalesce(jsonb_typeof(installation -> 'locale') = 'string' and length(installation ->> 'locale') between 1 and 35, true)
     and coalesce(jsonb_typeof(installation -> 'owner') = 'string' and length(installation ->> 'owner') between 1 and 200, true)
     and coalesce(installation ->> 'platform' in ('ios', 'android', 'unknown'), true)
     and coalesce(installation ->> 'permission' in ('granted', 'denied', 'undetermined'), true)
     and coalesce(jsonb_typeof(installation -> 'push_capable') = 'boolean', true);
end
$$;

-- Registers checked installations, none of which names another's id or token, and returns their ids in order.
create function relevo.write_installations(given jsonb) returns uuid[] language plpgsql volatile
as $$
declare
  ids uuid[];
  tokens text[];
begin
  select array_agg(g.i ->> 'token') into tokens from jsonb_array_elements(given) as g(i);
  -- phones that claim one token at once take turns here, and then those that swap theirs; a long list would fill the table of locks
  if cardinality(tokens) <= 20 then
    perform pg_advisory_xact_lock(hashtextextended('relevo.token:' || t.token, 0))
       from (select distinct u.token from unnest(tokens) as u(token) where u.token is not null order by 1) t;
  end if;
  -- the same token and owner without an id is the same installation
  select array_agg(coalesce((g.i ->> 'installation_id')::uuid, d.installation_id, gen_random_uuid()) order by g.ord) into ids
    from jsonb_array_elements(given) with ordinality as g(i, ord)
    left join lateral (select d.installation_id from relevo.device_installations d
                        where g.i ->> 'installation_id' is null and d.token = g.i ->> 'token'
                          and d.owner is not distinct from g.i ->> 'owner' and not d.for_news offset 0) d on true;
  perform from relevo.device_installations i
    where i.installation_id in (select u.id from unnest(ids) as u(id)
                                union select d.installation_id from unnest(tokens) as u(token)
                                cross join lateral (select d.installation_id from relevo.device_installations d where d.token = u.token offset 0) d)
    order by i.installation_id for update;
  update relevo.device_installations i
     set token = null, token_version = i.token_version + 1, invalidated_at = now(), invalid_reason = 'token_moved', updated_at = now()
    from unnest(ids, tokens) as g(id, token)
   where i.token = g.token and i.installation_id <> g.id;
  update relevo.device_installations i
     set token = case when g.i ? 'token' then g.i ->> 'token' else i.token end,
         token_version = i.token_version + (g.i ? 'token' and i.token is distinct from g.i ->> 'token')::int,
         provider = case when g.i ? 'provider' then coalesce(g.i ->> 'provider', 'expo') else i.provider end,
         project = case when g.i ? 'project' then coalesce(g.i ->> 'project', 'default') else i.project end,
         platform = case when g.i ? 'platform' then coalesce(g.i ->> 'platform', 'unknown') else i.platform end,
         locale = case when g.i ? 'locale' then g.i ->> 'locale' else i.locale end,
         owner = case when g.i ? 'owner' then g.i ->> 'owner' else i.owner end,
         opt_outs = case when g.i ? 'opt_outs' then array(select jsonb_array_elements_text(coalesce(nullif(g.i -> 'opt_outs', 'null'), '[]')))
                         else i.opt_outs end,
         push_capable = coalesce((g.i ->> 'push_capable')::boolean, true), permission = coalesce(g.i ->> 'permission', 'granted'),
         active = true, updated_at = now(),
         invalidated_at = case when g.i ? 'token' then null else i.invalidated_at end,
         invalid_reason = case when g.i ? 'token' then null else i.invalid_reason end
    from (select e.i, ids[e.ord] as id from jsonb_array_elements(given) with ordinality as e(i, ord)) g
   where i.installation_id = g.id;
  -- only the first time: whoever removed it since wants no pushes, however often the app registers
  with made as (
    insert into relevo.device_installations (installation_id, token, provider, project, platform, locale, owner, push_capable, permission, opt_outs)
    select ids[g.ord], g.i ->> 'token', coalesce(g.i ->> 'provider', 'expo'), coalesce(g.i ->> 'project', 'default'),
           coalesce(g.i ->> 'platform', 'unknown'), g.i ->> 'locale', g.i ->> 'owner', coalesce((g.i ->> 'push_capable')::boolean, true),
           coalesce(g.i ->> 'permission', 'granted'), array(select jsonb_array_elements_text(coalesce(nullif(g.i -> 'opt_outs', 'null'), '[]')))
      from jsonb_array_elements(given) with ordinality as g(i, ord)
      left join lateral (select true as known from relevo.device_installations d where d.installation_id = ids[g.ord] offset 0) d on true
     where d.known is null
     order by g.ord
    returning installation_id
  )
  insert into relevo.notification_preferences (installation_id, name) select m.installation_id, 'default' from made m on conflict do nothing;
  return ids;
end
$$;

-- Registers installations, each as if it came alone and in order, and returns their ids in order: takes tokens over from whoever had
-- them, counts their changes, switches pushes on again; what is not told of a known one stays as it is.
create function relevo.register_many(installations jsonb) returns uuid[]
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  firsts int[]; -- the places of those that share neither id nor token with one before them
  others int[];
  ids uuid[];
  written uuid[];
begin
  if jsonb_typeof(installations) is distinct from 'array' or jsonb_array_length(installations) > 100000 then
    perform relevo.refuse('installations must be a list of at most 100000 installations');
  end if;
  perform relevo.check_installation(i) from jsonb_array_elements(installations) as i where relevo.is_plain_installation(i) is not true;
  select coalesce(array_agg(n.ord order by n.ord) filter (where n.first), '{}'), coalesce(array_agg(n.ord order by n.ord) filter (where not n.first), '{}')
    into firsts, others
    from (select g.ord::int, (g.i ->> 'installation_id' is null or row_number() over (partition by lower(g.i ->> 'installation_id') order by g.ord) = 1)
                         and (g.i ->> 'token' is null or row_number() over (partition by g.i ->> 'token' order by g.ord) = 1) as first
            from jsonb_array_elements(installations) with ordinality as g(i, ord)) n;
  for tries in 1 .. 10 loop
    begin
      written := relevo.write_installations(case when others = '{}' then installations
        else (select jsonb_agg(installations -> (f.ord - 1) order by f.ord) from unnest(firsts) as f(ord)) end);
      exit;
    exception when unique_violation then
      -- somebody else took one of the tokens meanwhile; the next look sees that
      if tries = 10 then
        raise;
      end if;
    end;
  end loop;
  if others = '{}' then
    return coalesce(written, '{}');
  end if;
  for n in 1 .. cardinality(firsts) loop
    ids[firsts[n]] := written[n];
  end loop;
  for n in 1 .. cardinality(others) loop
    ids[others[n]] := (relevo.register_many(jsonb_build_array(installations -> (others[n] - 1))))[1];
  end loop;
  return ids;
end
$$;

-- Registers one installation, and returns its id.
create or replace function relevo.register_installation(installation jsonb) returns uuid
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  return (relevo.register_many(jsonb_build_array(coalesce(installation, 'null'))))[1];
end
$$;

-- The first thing in which a preference and an event differ, or null if they match: the same meaning as preference_matches, in words.
create function relevo.preference_mismatch(p relevo.notification_preferences, e relevo.notification_events) returns text
  language sql immutable
  return case when not p.enabled then 'disabled'
              when p.topics is not null and not p.topics && e.match_topics then 'topics'
              when p.rubro_prefix is not null and not coalesce(p.rubro_prefix = any (e.match_prefixes), false) then 'rubro_prefix'
              when p.tipo is not null and not coalesce(relevo.text_key(btrim(p.tipo)) = relevo.text_key(btrim(e.match_tipo)), false) then 'tipo'
              when p.region is not null and not coalesce(p.region_key = e.match_region, false) then 'region'
              when p.monto_min is not null and not coalesce(e.match_monto >= p.monto_min and e.match_moneda = p.moneda, false) then 'monto_min'
              when p.monto_max is not null and not coalesce(e.match_monto <= p.monto_max and e.match_moneda = p.moneda, false) then 'monto_max'
              when p.keywords is not null and not coalesce(e.match_words like any (p.patterns), false) then 'keywords' end;

-- How many installations an event reaches, and the first of them: exact up to some 20,000 that were looked at, estimated beyond.
create function relevo.count_targets(of_event bigint, most int) returns jsonb language plpgsql stable
as $$
declare
  e relevo.notification_events;
  buckets text[];
  last_seq bigint := (select coalesce(max(i.seq), 0) from relevo.device_installations i);
  after bigint := 0;
  bound bigint;
  found_here bigint;
  ids uuid[];
  reached bigint := 0;
  sample uuid[] := '{}';
  slices int := 0;
begin
  select n.* into e from relevo.notification_events n where n.id = of_event;
  buckets := case when e.audience = 'matching' then relevo.event_buckets(e) end;
  loop
    bound := null;
    if e.audience = 'everyone' then
      select i.seq into bound from relevo.device_installations i where i.seq > after order by i.seq offset 4999 limit 1;
    elsif e.audience = 'matching' then
      select c.seq into bound
        from (select x.seq from unnest(buckets) as b(bucket)
                cross join lateral (select x.seq from relevo.preference_index x where x.bucket = b.bucket and x.seq > after
                                     order by x.seq limit 5000) x
               order by x.seq limit 5000) c
       order by c.seq offset 4999;
    end if;
    select count(*), array_agg(t.installation_id order by t.n) filter (where t.n <= most - cardinality(sample)) into found_here, ids
      from (select s.installation_id, row_number() over () as n
              from relevo.slice_targets(of_event, e.audience, buckets, after, coalesce(bound, last_seq)) s) t;
    reached := reached + found_here;
    sample := sample || coalesce(ids, '{}');
    slices := slices + 1;
    exit when bound is null or slices = 4;
    after := bound;
  end loop;
  return jsonb_build_object(
    'count', case when bound is null then reached else round(reached::numeric * last_seq / bound) end, 'exact', bound is null,
    'sample', coalesce((select jsonb_agg(jsonb_build_object('installation_id', i.installation_id, 'owner', i.owner, 'project', i.project,
                                                            'provider', i.provider, 'platform', i.platform) order by u.n)
                          from unnest(sample) with ordinality as u(id, n)
                          join relevo.device_installations i on i.installation_id = u.id), '[]'));
end
$$;

-- Why an installation gets an event, or not: the rule that decides, by name and in a sentence; and its delivery, if there is one.
create function relevo.explain_event(of_event bigint, installation uuid) returns jsonb
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  e relevo.notification_events;
  i relevo.device_installations;
  d relevo.notification_deliveries;
  done relevo.event_completions;
  fitting text;
  misses jsonb := '[]';
  rule text;
  why text;
  gets boolean := false;
begin
  select n.* into e from relevo.notification_events n where n.id = of_event;
  select n.* into i from relevo.device_installations n where n.installation_id = installation;
  if e.event_day is not null then
    select n.* into d from relevo.notification_deliveries n
     where n.event_day = e.event_day and n.notification_event_id = e.id and n.installation_id = installation;
  end if;
  select c.* into done from relevo.event_completions c where c.event_id = e.id and c.owner = i.owner;
  if e.audience = 'matching' then
    select min(p.name) filter (where m.mismatch is null),
           coalesce(jsonb_agg(jsonb_build_object('name', p.name, 'differs_in', m.mismatch) order by p.name) filter (where m.mismatch is not null), '[]')
      into fitting, misses
      from relevo.notification_preferences p
      cross join lateral (select relevo.preference_mismatch(p, e) as mismatch) m
     where p.installation_id = installation;
  end if;
  case
    when e.id is null then
      rule := 'event_gone'; why := 'There is no such event, or it was archived.';
    when i.installation_id is null then
      rule := 'installation_gone'; why := 'There is no such installation.';
    when e.audience = 'everyone' and i.for_news then
      rule := 'not_named'; why := 'It is an address for news, and gets nothing else.';
    when e.audience = 'installations' and not exists (
           select from relevo.event_audience a where a.event_id = e.id and a.installation_id = installation
           union all
           select from relevo.event_owners o where o.event_id = e.id and o.owner = i.owner) then
      rule := 'not_named'; why := 'The event is for others: it names neither this installation nor its owner.';
    when e.project <> i.project then
      rule := 'not_named'; why := format('The event is for the phones of project %s.', e.project);
    when not relevo.may_receive(i) then
      rule := 'not_allowed'; why := format('Pushes may not go to it: %s.', relevo.why_not_allowed(i));
    when e.category = any (i.opt_outs) then
      rule := 'opted_out'; why := format('It opted out of the category %s.', e.category);
    when e.audience = 'matching' and misses = '[]' and fitting is null then
      rule := 'no_preference'; why := 'It has no preference, and so asks for nothing.';
    when e.audience = 'matching' and fitting is null then
      rule := 'preference_differs';
      why := format('None of its preferences matches: %s.', (select string_agg(case m ->> 'differs_in' when 'disabled' then format('%s is disabled', m ->> 'name')
               else format('%s differs in %s', m ->> 'name', m ->> 'differs_in') end, ', ') from jsonb_array_elements(misses) m));
    when done.event_id is not null then
      rule := 'handled_elsewhere'; why := 'Its owner handled the event on another phone' || coalesce(': ' || done.reason, '') || '.';
    when d.id is not null and i.handled_before >= d.created_at then
      rule := 'handled_elsewhere'; why := 'Everything for it was handled elsewhere' || coalesce(': ' || i.handled_reason, '') || '.';
    when e.ended_at is not null then
      rule := 'event_ended'; why := format('The event was %s', e.state) || coalesce(': ' || e.end_reason, '') || '.';
    when e.deadline_at <= now() and d.id is null then
      rule := 'deadline_passed'; why := 'Its deadline has passed.';
    when e.fanout_finished_at is not null and d.id is null then
      rule := 'came_later'; why := 'The event had fanned out before this installation could receive it.';
    else
      gets := true;
      rule := case when e.audience = 'matching' then 'preference'
                   when e.audience = 'everyone' then 'everyone'
                   when exists (select from relevo.event_audience a where a.event_id = e.id and a.installation_id = installation) then 'named'
                   else 'owner' end;
      why := case rule when 'preference' then format('Its preference %s matches.', fitting)
                       when 'everyone' then 'The event is for everyone.'
                       when 'named' then 'The event names this installation.'
                       else format('The event is for its owner, %s.', i.owner) end;
  end case;
  return jsonb_build_object('gets_it', coalesce(d.status in ('pending', 'retryable', 'sent', 'ok', 'unconfirmed', 'unknown'), gets), 'rule', rule, 'reason', why,
    'preference', fitting, 'differing_preferences', misses,
    'delivery', case when d.id is not null then jsonb_build_object('id', d.id, 'status', d.status, 'attempts', d.attempt_count,
                       'error_code', d.last_error_code, 'updated_at', d.updated_at) end);
end
$$;

-- Enqueues an event under a key of its own, asks whom it reaches, or why one installation gets it or not, and undoes it all.
create function relevo.try_event(event jsonb, most int, installation uuid) returns jsonb language plpgsql volatile
as $$
declare
  tried record;
  told jsonb;
begin
  perform relevo.check_event(event);
  begin
    select w.* into tried from relevo.write_events(jsonb_build_array(event || jsonb_build_object('key', 'tried ' || gen_random_uuid()))) w;
    told := case when installation is not null then relevo.explain_event(tried.event_id, installation)
                 else relevo.count_targets(tried.event_id, most) || jsonb_build_object('unknown_installations', to_jsonb(tried.unknown_installations)) end;
    raise exception using errcode = 'RLV00', message = 'undone';
  exception when sqlstate 'RLV00' then
    return told;
  end;
end
$$;

-- Tells how many installations an event would reach, and the first of them; nothing is enqueued.
create function relevo.preview(event jsonb, most int default 10) returns jsonb
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if coalesce(most, -1) not between 0 and 100 then
    perform relevo.refuse('most must be between 0 and 100');
  end if;
  return relevo.try_event(event, most, null);
end
$$;

-- Tells why an installation would get an event, or not; nothing is enqueued.
create function relevo.explain(event jsonb, installation uuid) returns jsonb
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if installation is null then
    perform relevo.refuse('installation must be given');
  end if;
  return relevo.try_event(event, 0, installation);
end
$$;

-- Changes an event that has not started yet into what is given, by its type and key; tells whether it did. It keeps its id.
create function relevo.change(event jsonb) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  old relevo.notification_events;
  tried record;
begin
  perform relevo.check_event(event);
  if starts_with(event ->> 'type', 'relevo.') then
    perform relevo.refuse('type must not begin with relevo., which is for Relevo itself');
  end if;
  select n.* into old from relevo.notification_events n
   where n.event_type = event ->> 'type' and n.event_key = event ->> 'key' and n.state = 'waiting' and n.event_day is null for update;
  if not found then
    return false;
  end if;
  -- written as a new one would be, and then put in the old one's place
  select w.* into tried from relevo.write_events(jsonb_build_array(event || jsonb_build_object('key', 'changed ' || gen_random_uuid()))) w;
  update relevo.notification_events e
     set licitacion_id = n.licitacion_id, title = n.title, body = n.body, data = n.data, push = n.push, audience = n.audience, category = n.category,
         lane = n.lane, at_most_once = n.at_most_once, scheduled_at = n.scheduled_at, deadline_at = n.deadline_at, match_topics = n.match_topics,
         match_rubros = n.match_rubros, match_region = n.match_region, match_tipo = n.match_tipo, match_monto = n.match_monto,
         match_moneda = n.match_moneda, match_words = n.match_words, updated_at = now(),
         content_hash = encode(sha256(convert_to(jsonb_strip_nulls(event)::text, 'UTF8')), 'hex')
    from relevo.notification_events n
   where e.id = old.id and n.id = tried.event_id;
  delete from relevo.event_audience where event_id = old.id;
  delete from relevo.event_owners where event_id = old.id;
  update relevo.event_audience set event_id = old.id where event_id = tried.event_id;
  update relevo.event_owners set event_id = old.id where event_id = tried.event_id;
  delete from relevo.notification_events where id = tried.event_id;
  perform relevo.wake('fanout');
  return true;
end
$$;

-- Tells of the phones of a wave that none of them changed since it was claimed: each has the token it had, and may receive what all of
-- these events say. `made` is when the first of the wave's deliveries was made: a phone that was handled later is looked at closely, and
-- so are those of an event that one of its owners handled.
create or replace function relevo.phones_unchanged_1(installations uuid[], versions int[], events bigint[], made timestamptz) returns boolean
  language plpgsql stable
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
  set plan_cache_mode = force_generic_plan
as $$
declare
  categories text[] := array(select e.category from relevo.notification_events e where e.id = any (events) and e.category is not null);
begin
  return not exists (select from relevo.event_completions c where c.event_id = any (events))
    and not exists (
      select from unnest(installations, versions) as w(installation_id, token_version)
        left join relevo.device_installations i on i.installation_id = w.installation_id
       where (i.token_version = w.token_version and relevo.may_receive(i) and (i.handled_before is null or i.handled_before < made)
              and (i.opt_outs = '{}' or not i.opt_outs && categories)) is not true);
end
$$;

-- The functions that make up the door.
create or replace function relevo.door_functions() returns text[] language sql immutable
return array['enqueue(jsonb)', 'enqueue_many(jsonb)', 'event_id(text, text)', 'get_event(bigint)', 'cancel(bigint, text)',
  'complete(bigint, text)', 'complete_installation(uuid, text)', 'complete_owner(text, bigint, text)', 'delete_events(bigint[])',
  'change(jsonb)', 'preview(jsonb, int)', 'explain(jsonb, uuid)', 'explain_event(bigint, uuid)',
  'register_installation(jsonb)', 'register_many(jsonb)', 'list_installations(text, int)', 'unregister_installation(uuid)',
  'unregister_owner(text)', 'forget_installation(uuid)', 'forget_owner(text)', 'set_preference(uuid, text, jsonb)', 'subscribe_news(jsonb)',
  'read_news(text, bigint, int)', 'acknowledge_news(text, bigint)'];

revoke all on function relevo.check_installation(jsonb), relevo.is_plain_installation(jsonb), relevo.write_installations(jsonb),
  relevo.register_many(jsonb), relevo.preference_mismatch(relevo.notification_preferences, relevo.notification_events),
  relevo.count_targets(bigint, int), relevo.explain_event(bigint, uuid), relevo.try_event(jsonb, int, uuid), relevo.preview(jsonb, int),
  relevo.explain(jsonb, uuid), relevo.change(jsonb) from public;

-- Whoever may use the door may use what is new of it.
do $$
begin
  perform relevo.grant_door(r.rolname)
     from pg_proc p
     cross join aclexplode(p.proacl) a
     join pg_roles r on r.oid = a.grantee
    where p.oid = 'relevo.enqueue(jsonb)'::regprocedure and a.grantee <> p.proowner and a.privilege_type = 'EXECUTE';
end
$$;

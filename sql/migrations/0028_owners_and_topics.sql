-- needs relevo 0.2.0
-- People and topics: events for owners on whatever phones they have, topics beside tender preferences, pushes without a word, and a
-- closer look at what a push may carry.

-- An event for owners is personal as one for given installations is, and is kept as such: its audience says installations.
create table relevo.event_owners (
  event_id bigint not null references relevo.notification_events on delete cascade,
  owner    text not null check (length(owner) between 1 and 200),
  primary key (event_id, owner)
);

create index event_owners_owner on relevo.event_owners (owner);

comment on table relevo.event_owners is 'The owners a personal event is for: it goes to the phones that are theirs when it fans out.';

create table relevo.event_completions (
  event_id     bigint not null references relevo.notification_events on delete cascade,
  owner        text not null check (length(owner) between 1 and 200),
  reason       text check (length(reason) between 1 and 300),
  completed_at timestamptz not null default now(),
  primary key (event_id, owner)
);

create index event_completions_owner on relevo.event_completions (owner);

comment on table relevo.event_completions is 'What an owner handled on one phone: what is left of it for the others ends unsent.';

alter table relevo.device_installations add column handled_reason text check (length(handled_reason) between 1 and 300);

comment on column relevo.device_installations.handled_reason is 'Why everything for it was said to be handled, when that was last said.';

-- an event without a word is for the app alone
alter table relevo.notification_events
  drop constraint notification_events_title_check,
  add constraint notification_events_title_check check (length(title) <= 500),
  add column match_topics text[] not null default '{}';

alter table relevo.notification_preferences
  add column topics text[] check (cardinality(topics) between 1 and 100);

-- The one meaning of a match, used by fan-out and again at dispatch; without a subquery, so that it is inlined.
create or replace function relevo.preference_matches(p relevo.notification_preferences, e relevo.notification_events)
  returns boolean language sql immutable
  return p.enabled
     and (p.topics is null or p.topics && e.match_topics)
     and (p.rubro_prefix is null or coalesce(p.rubro_prefix = any (e.match_prefixes), false))
     and (p.tipo is null or coalesce(relevo.text_key(btrim(p.tipo)) = relevo.text_key(btrim(e.match_tipo)), false))
     and (p.region is null or coalesce(p.region_key = e.match_region, false))
     and (p.monto_min is null or coalesce(e.match_monto >= p.monto_min and e.match_moneda = p.moneda, false))
     and (p.monto_max is null or coalesce(e.match_monto <= p.monto_max and e.match_moneda = p.moneda, false))
     and (p.keywords is null or coalesce(e.match_words like any (p.patterns), false));

comment on table relevo.preference_index is 'Each enabled preference under its most selective dimension: topic, else keyword, rubro, region, tipo, else everything; sure if that alone decides.';

-- The buckets a preference stands in, and whether the bucket alone decides; a keyword of several words stands under its first.
create or replace function relevo.preference_buckets(p relevo.notification_preferences) returns table (bucket text, sure boolean)
  language sql immutable
as $$
  select 'topic:' || t.topic, num_nonnulls(p.keywords, p.rubro_prefix, p.region, p.tipo, p.monto_min, p.monto_max) = 0
    from (select distinct u.topic from unnest(p.topics) as u(topic)) t
   where p.enabled
  union all
  select 'k:' || split_part(w.words, ' ', 1),
         bool_or(position(' ' in w.words) = 0)
           and p.rubro_prefix is null and p.region is null and p.tipo is null and p.monto_min is null and p.monto_max is null
    from (select btrim(relevo.words(k.word)) as words from unnest(p.keywords) as k(word)) w
   where p.enabled and p.topics is null and p.keywords is not null and w.words <> ''
   group by 1
  union all
  select case when p.rubro_prefix is not null then 'r:' || p.rubro_prefix
              when p.region is not null then 'g:' || coalesce(p.region_key, '')
              when p.tipo is not null then 't:' || relevo.text_key(btrim(p.tipo))
              else '*' end,
         num_nonnulls(p.rubro_prefix, p.region, p.tipo) <= 1 and p.monto_min is null and p.monto_max is null
   where p.enabled and p.topics is null and p.keywords is null
$$;

-- The buckets in which preferences that may match an event stand.
create or replace function relevo.event_buckets(e relevo.notification_events) returns text[] language sql immutable
as $$
  select array(
    select '*'
    union select 'topic:' || t.topic from unnest(e.match_topics) as t(topic)
    union select 'k:' || w.word from unnest(string_to_array(btrim(coalesce(e.match_words, '')), ' ')) as w(word) where w.word <> ''
    union select 'r:' || r.prefix from unnest(e.match_prefixes) as r(prefix)
    union select 'g:' || e.match_region where e.match_region is not null
    union select 't:' || relevo.text_key(btrim(e.match_tipo)) where e.match_tipo is not null)
$$;

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
   where k <> all (array['enabled', 'topics', 'rubro_prefix', 'tipo', 'region', 'monto_min', 'monto_max', 'moneda', 'keywords']);
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
  if not exists (select from relevo.device_installations i where i.installation_id = installation) then
    perform relevo.refuse(format('there is no installation %s; register it first', installation));
  end if;
  insert into relevo.notification_preferences (installation_id, name, enabled, topics, rubro_prefix, tipo, region, monto_min, monto_max, moneda,
                                               keywords)
  select installation, preference_name, coalesce(r.enabled, true), nullif(r.topics, '{}'), r.rubro_prefix, r.tipo, r.region, r.monto_min, r.monto_max,
         coalesce(r.moneda, case when r.monto_min is not null or r.monto_max is not null then 'CLP' end), nullif(r.keywords, '{}')
    from jsonb_to_record(preference) as r(enabled boolean, topics text[], rubro_prefix text, tipo text, region text, monto_min numeric,
                                          monto_max numeric, moneda text, keywords text[])
  on conflict (installation_id, name) do update
     set enabled = excluded.enabled, topics = excluded.topics, rubro_prefix = excluded.rubro_prefix, tipo = excluded.tipo, region = excluded.region,
         monto_min = excluded.monto_min, monto_max = excluded.monto_max, moneda = excluded.moneda, keywords = excluded.keywords,
         updated_at = now();
  return true;
end
$$;

-- What a push may carry beside title, body and data: each field's kind and bounds. The package has the same table; a test compares them.
create function relevo.push_fields() returns jsonb language sql immutable
return '{
  "subtitle": {"kind": "text", "most": 500},
  "sound": {"kind": "text or object", "most": 100, "fields": {
    "name": {"kind": "text", "most": 100}, "critical": {"kind": "boolean"}, "volume": {"kind": "number", "low": 0, "high": 1}}},
  "badge": {"kind": "whole number", "low": 0, "high": 2147483647},
  "ttl": {"kind": "whole number", "low": 0, "high": 2419200},
  "expiration": {"kind": "whole number", "low": 0, "high": 253402300799},
  "priority": {"kind": "choice", "of": ["default", "normal", "high"]},
  "interruptionLevel": {"kind": "choice", "of": ["active", "critical", "passive", "time-sensitive"]},
  "relevanceScore": {"kind": "number", "low": 0, "high": 1},
  "channelId": {"kind": "text", "most": 200},
  "categoryId": {"kind": "text", "most": 200},
  "collapseId": {"kind": "text", "most": 64},
  "threadId": {"kind": "text", "most": 200},
  "targetContentId": {"kind": "text", "most": 200},
  "filterCriteria": {"kind": "text", "most": 200},
  "tag": {"kind": "text", "most": 200},
  "icon": {"kind": "text", "most": 500},
  "richContent": {"kind": "object", "fields": {"image": {"kind": "text", "most": 2000}}},
  "mutableContent": {"kind": "boolean"},
  "contentAvailable": {"kind": "boolean"},
  "_contentAvailable": {"kind": "boolean"},
  "_displayInForeground": {"kind": "boolean"}
}'::jsonb;

-- What is wrong with the fields of a push, in a sentence, or null; a field of null is as if it were not there.
create function relevo.push_complaint(given jsonb, rules jsonb default relevo.push_fields(), place text default 'push') returns text
  language plpgsql immutable
as $$
declare
  field text;
  value jsonb;
  rule jsonb;
  kind text;
  wrong text;
begin
  if given is null or given in ('{}', 'null') then
    return null;
  end if;
  for field, value in select f.key, f.value from jsonb_each(given) f order by f.key collate "C" loop
    rule := rules -> field;
    if rule is null then
      return format('%s has no field %s; it may have %s', place, left(field, 60), (select string_agg(k, ', ' order by k collate "C") from jsonb_object_keys(rules) k));
    end if;
    kind := rule ->> 'kind';
    case jsonb_typeof(value)
      when 'null' then
        continue;
      when 'string' then
        if kind in ('text', 'text or object') and length(value #>> '{}') between 1 and (rule ->> 'most')::int
           or kind = 'choice' and rule -> 'of' @> value then
          continue;
        end if;
      when 'boolean' then
        if kind = 'boolean' then
          continue;
        end if;
      when 'number' then
        if kind in ('number', 'whole number') and (value #>> '{}')::numeric between (rule ->> 'low')::numeric and (rule ->> 'high')::numeric
           and (kind = 'number' or (value #>> '{}')::numeric % 1 = 0) then
          continue;
        end if;
      when 'object' then
        if kind in ('object', 'text or object') then
          wrong := relevo.push_complaint(value, rule -> 'fields', format('%s.%s', place, field));
          if wrong is not null then
            return wrong;
          end if;
          continue;
        end if;
      else
    end case;
    return format('%s.%s must be %s', place, field, case kind
      when 'text' then format('text of 1 to %s characters', rule ->> 'most')
      when 'text or object' then format('text of 1 to %s characters, or a JSON object', rule ->> 'most')
      when 'choice' then 'one of ' || (select string_agg(c, ', ') from jsonb_array_elements_text(rule -> 'of') c)
      when 'boolean' then 'true or false'
      when 'object' then 'a JSON object'
      else format('a %s between %s and %s', kind, rule ->> 'low', rule ->> 'high') end);
  end loop;
  return null;
end
$$;

-- Tells of the usual event that nothing is wrong with it, in one expression. Of any other it says nothing: check_event finds the words.
-- What is rendered of an event is at most 500 bytes longer than the event itself.
create or replace function relevo.is_plain_event(event jsonb) returns boolean language plpgsql immutable
as $$
begin
  return jsonb_typeof(event) = 'object'
     and event - array['type', 'key', 'title', 'body', 'data', 'push', 'audience', 'installations', 'owners', 'category', 'lane', 'at_most_once',
                       'scheduled_at', 'deadline_at', 'ttl_s'] = '{}'
     and jsonb_typeof(event -> 'type') = 'string' and length(event ->> 'type') <= 100 and btrim(event ->> 'type') <> ''
     and jsonb_typeof(event -> 'key') = 'string' and length(event ->> 'key') <= 300 and btrim(event ->> 'key') <> ''
     and jsonb_typeof(event -> 'title') = 'string' and length(event ->> 'title') <= 500 and btrim(event ->> 'title') <> ''
     and coalesce(jsonb_typeof(event -> 'body') in ('string', 'null') and length(event ->> 'body') <= 2000, event ->> 'body' is null)
     and coalesce(jsonb_typeof(event -> 'category') in ('string', 'null') and length(event ->> 'category') between 1 and 100, event ->> 'category' is null)
     and coalesce(jsonb_typeof(event -> 'data') in ('object', 'null'), true)
     and case when event ->> 'push' is null then true
              when jsonb_typeof(event -> 'push') = 'object' then event ->> 'push' = '{}' or relevo.push_complaint(event -> 'push') is null end
     and coalesce(event ->> 'lane' in ('urgent', 'bulk'), true)
     and coalesce(jsonb_typeof(event -> 'at_most_once') in ('boolean', 'null'), true)
     and case when event ->> 'ttl_s' is null then true
              when jsonb_typeof(event -> 'ttl_s') <> 'number' then false
              else (event ->> 'ttl_s')::numeric between 1 and 2419200 and (event ->> 'ttl_s')::numeric % 1 = 0 end
     and case event ->> 'audience'
              when 'installations' then
                case when jsonb_typeof(event -> 'installations') = 'array' then jsonb_array_length(event -> 'installations') <= 1000 end
                and event ->> 'installations' ~* '^\["[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"(, "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")*\]$'
                and event ->> 'owners' is null
              when 'owners' then
                case when jsonb_typeof(event -> 'owners') = 'array' then jsonb_array_length(event -> 'owners') <= 1000 end
                and event ->> 'owners' ~ '^\["[^"\\]{1,200}"(, "[^"\\]{1,200}")*\]$'
                and event ->> 'installations' is null
              when 'everyone' then event ->> 'installations' is null and event ->> 'owners' is null
              else false end
     and octet_length(event::text) <= 3400;
end
$$;

-- Complains about whom an event is for.
create function relevo.check_audience(event jsonb) returns void language plpgsql stable
as $$
declare
  wrong text;
  matching jsonb := coalesce(nullif(event -> 'matching', 'null'), '{}');
begin
  if coalesce(event -> 'audience', 'null') = 'null' then
    perform relevo.refuse('audience must be given: everyone, installations, owners or matching');
  end if;
  if event ->> 'audience' <> all (array['everyone', 'installations', 'owners', 'matching']) then
    perform relevo.refuse('audience must be everyone, installations, owners or matching');
  end if;
  for wrong in select k from unnest(array['installations', 'owners']) as k
                where (event ->> 'audience' = k) <> (coalesce(jsonb_typeof(event -> k), 'null') = 'array') loop
    perform relevo.refuse(format('%s must be a list exactly when audience is %s', wrong, wrong));
  end loop;
  if event ->> 'audience' = 'installations' and jsonb_array_length(event -> 'installations') > 100000 then
    perform relevo.refuse('installations must name at most 100000 of them');
  end if;
  select i.each into wrong from jsonb_array_elements_text(coalesce(nullif(event -> 'installations', 'null'), '[]')) as i(each)
   where coalesce(i.each, '') !~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' limit 1;
  if found then
    perform relevo.refuse(format('installations must be UUIDs, got %s', coalesce(left(wrong, 60), 'null')));
  end if;
  perform relevo.check_list(event, 'owners', 100000, 200);
  perform relevo.check_list(event, 'topics', 100, 100);
  if coalesce(nullif(event -> 'topics', 'null'), '[]') <> '[]' and event ->> 'audience' <> 'matching' then
    perform relevo.refuse('topics are looked for in preferences: with topics, audience must be matching');
  end if;
  if event ->> 'audience' = 'matching' and coalesce(jsonb_typeof(event -> 'matching'), 'null') <> 'object'
     and coalesce(nullif(event -> 'topics', 'null'), '[]') = '[]' then
    perform relevo.refuse('matching or topics must say what the event is about when audience is matching');
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
end
$$;

-- Checks an event as given, and complains about the first thing that is wrong, by name.
create or replace function relevo.check_event(event jsonb) returns void language plpgsql stable
as $$
declare
  wrong text;
begin
  if relevo.is_plain_event(event) then
    return;
  end if;
  if jsonb_typeof(event) is distinct from 'object' then
    perform relevo.refuse('an event must be a JSON object');
  end if;
  select string_agg(k, ', ' order by k) into wrong from jsonb_object_keys(event) as k
   where k <> all (array['type', 'key', 'title', 'body', 'data', 'push', 'audience', 'installations', 'owners', 'matching', 'topics', 'category',
                         'lane', 'at_most_once', 'scheduled_at', 'deadline_at', 'ttl_s', 'licitacion_id']);
  if wrong is not null then
    perform relevo.refuse(format('an event has no field %s', wrong));
  end if;
  for wrong in select k from unnest(array['type', 'key']) as k where coalesce(btrim(event ->> k), '') = '' loop
    perform relevo.refuse(format('%s must be given', wrong));
  end loop;
  perform relevo.check_texts(event, '{"type": 100, "key": 300, "category": 100}');
  perform relevo.check_texts(event, '{"title": 500, "body": 2000}', 0);
  for wrong in select k from unnest(array['data', 'push', 'matching']) as k
                where event ? k and event -> k <> 'null' and jsonb_typeof(event -> k) <> 'object' loop
    perform relevo.refuse(format('%s must be a JSON object', wrong));
  end loop;
  if concat(btrim(event ->> 'title'), btrim(event ->> 'body')) = '' and coalesce(nullif(event -> 'data', 'null'), '{}') = '{}' then
    perform relevo.refuse('an event must say something: give it a title, a body or data');
  end if;
  wrong := relevo.push_complaint(event -> 'push');
  if wrong is not null then
    perform relevo.refuse(wrong);
  end if;
  perform relevo.check_audience(event);
  if coalesce(event ->> 'lane', 'bulk') <> all (array['urgent', 'bulk']) then
    perform relevo.refuse('lane must be urgent or bulk');
  end if;
  perform relevo.check_boolean(event, 'at_most_once');
  perform relevo.check_number(event, 'ttl_s', 1, 2419200, whole => true);
  perform relevo.check_number(event, 'licitacion_id', 1, 9223372036854775807, whole => true);
  if relevo.push_bytes(coalesce(event ->> 'title', ''), coalesce(event ->> 'body', ''), coalesce(nullif(event -> 'data', 'null'), '{}'),
                       coalesce(nullif(event -> 'push', 'null'), '{}')) > 4096 then
    perform relevo.refuse('title, body, data and push together must fit into 4096 bytes once rendered');
  end if;
end
$$;

-- What is told of an event changes its shape, and with it the functions that tell it; whoever might call them may again, below.
create temporary table door_roles on commit drop as
  select distinct r.rolname
    from pg_proc p
    cross join aclexplode(p.proacl) a
    join pg_roles r on r.oid = a.grantee
   where p.oid = 'relevo.enqueue(jsonb)'::regprocedure and a.grantee <> p.proowner and a.privilege_type = 'EXECUTE';

drop function relevo.enqueue(jsonb);
drop function relevo.enqueue_many(jsonb);
drop function relevo.write_events(jsonb);
drop function relevo.complete_installation(uuid);

-- Writes those of some checked events that are not known yet, in their order, and tells of each in order. One without an id was written
-- by somebody else meanwhile, or stands here twice: only a new statement sees which it is.
create function relevo.write_events(events jsonb)
  returns table (event_id bigint, created boolean, same_content boolean, unknown_installations uuid[])
  language plpgsql volatile set jit = off
as $$
begin
  return query
  with given as materialized (
    select g.ord, g.event, g.event ->> 'type' as event_type,
           -- its own, and the one by which it is known if it was personal and is old or forgotten
           array[g.event ->> 'key', relevo.hidden_key(g.event ->> 'type', g.event ->> 'key')] as keys,
           encode(sha256(convert_to(jsonb_strip_nulls(g.event)::text, 'UTF8')), 'hex') as hash,
           coalesce(case when g.event ? 'scheduled_at' then relevo.event_time(g.event, 'scheduled_at') end, now()) as at,
           case when g.event ? 'deadline_at' then relevo.event_time(g.event, 'deadline_at') end as until
      from jsonb_array_elements(events) with ordinality as g(event, ord)
  ), looked_up as materialized (
    select g.*, coalesce(n.id, k.event_id) as known_id, nullif(coalesce(n.content_hash, k.content_hash), '') = g.hash as same_hash,
           row_number() over (partition by g.event_type, g.keys[1] order by g.ord) as nth
      from given g
      left join lateral (select n.id, n.content_hash from relevo.notification_events n
                          where n.event_type = g.event_type and n.event_key = any (g.keys) limit 1) n on true
      left join lateral (select k.event_id, k.content_hash from relevo.event_keys k
                          where n.id is null and k.event_type = g.event_type and k.event_key = any (g.keys) limit 1) k on true
  ), numbered as materialized (
    select l.*, case when l.known_id is null and l.nth = 1 then nextval('relevo.notification_events_id_seq') end as new_id
      from (select * from looked_up order by ord) l
  ), made as (
    insert into relevo.notification_events as n (id, event_type, event_key, licitacion_id, title, body, data, push, audience, category,
      lane, at_most_once, scheduled_at, deadline_at, match_topics, match_rubros, match_region, match_tipo, match_monto, match_moneda, match_words,
      content_hash)
    select m.new_id, m.event_type, m.keys[1], (m.event ->> 'licitacion_id')::numeric::bigint, coalesce(m.event ->> 'title', ''),
           coalesce(m.event ->> 'body', ''), coalesce(nullif(m.event -> 'data', 'null'), '{}'), coalesce(nullif(m.event -> 'push', 'null'), '{}'),
           case m.event ->> 'audience' when 'owners' then 'installations' else m.event ->> 'audience' end, m.event ->> 'category',
           coalesce(m.event ->> 'lane', t.lane, 'bulk'), coalesce((m.event ->> 'at_most_once')::boolean, t.at_most_once, false), m.at,
           relevo.check_deadline(coalesce(m.until, m.at + coalesce((m.event ->> 'ttl_s')::numeric::int, t.ttl_s) * interval '1 second'), m.at),
           case when m.event -> 'topics' <> 'null' then array(select distinct jsonb_array_elements_text(m.event -> 'topics')) else '{}' end,
           case when m.event #> '{matching,rubros}' <> 'null' then array(select jsonb_array_elements_text(m.event #> '{matching,rubros}')) else '{}' end,
           relevo.region_key(m.event #>> '{matching,region}'), m.event #>> '{matching,tipo}',
           (m.event #>> '{matching,monto}')::numeric, m.event #>> '{matching,moneda}', relevo.words(m.event #>> '{matching,text}'), m.hash
      from numbered m
      left join lateral (select t.* from relevo.event_types t where t.event_type = m.event_type offset 0) t on true
     where m.new_id is not null
     order by m.ord -- in the order of all who write the same: nobody waits crosswise
    on conflict (event_type, event_key) do nothing
    returning n.id
  ), named as (
    insert into relevo.event_audience (event_id, installation_id)
    select m.new_id, i.installation::uuid
      from numbered m
      cross join lateral jsonb_array_elements_text(nullif(m.event -> 'installations', 'null')) as i(installation)
     where (m.new_id in (select w.id from made w)) is true -- looked up in a hash: "is true" keeps it from becoming a join
    on conflict do nothing
  ), owned as (
    insert into relevo.event_owners (event_id, owner)
    select m.new_id, o.owner
      from numbered m
      cross join lateral jsonb_array_elements_text(nullif(m.event -> 'owners', 'null')) as o(owner)
     where (m.new_id in (select w.id from made w)) is true
    on conflict do nothing
  )
  select coalesce(m.known_id, case when (m.new_id in (select w.id from made w)) is true then m.new_id end),
         m.known_id is null, m.known_id is null or m.same_hash,
         case when coalesce(m.event -> 'installations', 'null') <> 'null' then
           array(select i.installation::uuid
                   from jsonb_array_elements_text(m.event -> 'installations') as i(installation)
                   left join lateral (select true as known from relevo.device_installations d
                                       where d.installation_id = i.installation::uuid offset 0) d on true
                  where d.known is null)
           else '{}' end
    from numbered m
   order by m.ord;
end
$$;

-- Enqueues events, the app's commit decides; one row each, in order: its id, whether it is new, whether an old one says the same (null
-- if that is not known any more), and which of the installations it names nobody registered. Relevo's own types, too.
create function relevo.enqueue_any_type(events jsonb)
  returns table (event_id bigint, created boolean, same_content boolean, unknown_installations uuid[])
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  ids bigint[];
  news boolean[];
  sames boolean[];
  strangers text[]; -- lists of different lengths have no array of their own
  one record;
begin
  if jsonb_typeof(events) is distinct from 'array' or jsonb_array_length(events) > 100000 then
    perform relevo.refuse('events must be a list of at most 100000 events');
  end if;
  perform relevo.check_event(e) from jsonb_array_elements(events) as e;
  select array_agg(w.event_id), array_agg(w.created), array_agg(w.same_content), array_agg(w.unknown_installations::text)
    into ids, news, sames, strangers from relevo.write_events(events) w;
  for n in 1 .. coalesce(cardinality(ids), 0) loop
    while ids[n] is null loop
      select w.* into one from relevo.write_events(jsonb_build_array(events -> (n - 1))) w;
      ids[n] := one.event_id;
      news[n] := one.created;
      sames[n] := one.same_content;
    end loop;
  end loop;
  if true = any (news) then
    perform relevo.wake('fanout');
  end if;
  return query select u.id, u.new, u.same, u.strangers::uuid[] from unnest(ids, news, sames, strangers) as u(id, new, same, strangers);
end
$$;

-- Enqueues events of the app's types.
create function relevo.enqueue_many(events jsonb)
  returns table (event_id bigint, created boolean, same_content boolean, unknown_installations uuid[])
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if exists (select from jsonb_array_elements(case jsonb_typeof(events) when 'array' then events else '[]' end) as e
              where jsonb_typeof(e -> 'type') = 'string' and starts_with(e ->> 'type', 'relevo.')) then
    perform relevo.refuse('type must not begin with relevo., which is for Relevo itself');
  end if;
  return query select * from relevo.enqueue_any_type(events);
end
$$;

create function relevo.enqueue(event jsonb)
  returns table (event_id bigint, created boolean, same_content boolean, unknown_installations uuid[])
  language sql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$ select * from relevo.enqueue_many(jsonb_build_array(event)) $$;

-- The id of an event by its type and key, or null; one that was archived is not found.
create function relevo.event_id(of_type text, of_key text) returns bigint
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select e.id from relevo.notification_events e
   where e.event_type = of_type and e.event_key = any (array[of_key, relevo.hidden_key(of_type, of_key)]) limit 1
$$;

-- One event and how far its deliveries are, without counting them.
create or replace function relevo.get_event(id_of_event bigint) returns jsonb
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object('id', e.id, 'type', e.event_type, 'key', e.event_key, 'state', e.state, 'title', e.title, 'body', e.body,
           'audience', case when e.audience = 'installations' and exists (select from relevo.event_owners o where o.event_id = e.id)
                            then 'owners' else e.audience end,
           'topics', to_jsonb(e.match_topics), 'category', e.category, 'lane', e.lane, 'at_most_once', e.at_most_once,
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

-- Handled elsewhere, e.g. read in the app: what was made for this installation until now ends unsent.
create function relevo.complete_installation(installation uuid, reason text default null) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  update relevo.device_installations
     set handled_before = now(), handled_reason = left(nullif(btrim(complete_installation.reason), ''), 300), updated_at = now()
   where installation_id = installation;
  return found;
end
$$;

-- Handled by its owner on one phone: what is left of one event for the others, or of all that was made for them until now, ends unsent.
create function relevo.complete_owner(of_owner text, of_event bigint default null, reason text default null) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  why text := left(nullif(btrim(reason), ''), 300);
begin
  perform relevo.check_owner(of_owner);
  if of_event is not null then
    insert into relevo.event_completions (event_id, owner, reason)
    select e.id, of_owner, why from relevo.notification_events e where e.id = of_event and e.ended_at is null for key share
    on conflict do nothing;
    return found;
  end if;
  perform from relevo.device_installations i where i.owner = of_owner order by i.installation_id for no key update;
  update relevo.device_installations set handled_before = now(), handled_reason = why, updated_at = now() where owner = of_owner;
  return found;
end
$$;

-- Complains about what can be nobody's name.
create function relevo.check_owner(owner text) returns void language plpgsql immutable
as $$
begin
  if length(owner) between 1 and 200 then
    return;
  end if;
  perform relevo.refuse('owner must be text of 1 to 200 characters');
end
$$;

-- Why an installation may not receive pushes at all, or null.
create function relevo.why_not_allowed(i relevo.device_installations) returns text language sql stable
  return case when relevo.may_receive(i) then null
              when not i.active then 'unregistered'
              when i.invalidated_at is not null then i.invalid_reason
              when i.permission <> 'granted' then 'permission ' || i.permission
              when i.token is null then 'no token'
              else 'not push capable' end;

-- The installations of an owner, newest first, and whether each may receive pushes; no token among it.
create function relevo.list_installations(of_owner text, most int default 100) returns jsonb
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform relevo.check_owner(of_owner);
  if coalesce(most, 0) not between 1 and 1000 then
    perform relevo.refuse('most must be between 1 and 1000');
  end if;
  return coalesce((
    select jsonb_agg(jsonb_build_object('installation_id', i.installation_id, 'owner', i.owner, 'project', i.project, 'provider', i.provider,
             'platform', i.platform, 'locale', i.locale, 'opt_outs', to_jsonb(i.opt_outs), 'receives', relevo.may_receive(i),
             'why_not', relevo.why_not_allowed(i), 'registered_at', i.registered_at, 'updated_at', i.updated_at,
             'preferences', (select coalesce(jsonb_agg(p.name order by p.name), '[]') from relevo.notification_preferences p
                              where p.installation_id = i.installation_id and p.enabled)) order by i.seq desc)
      from (select * from relevo.device_installations i where i.owner = of_owner order by i.seq desc limit most) i), '[]');
end
$$;

-- Unregisters an installation, as at a log-out: nothing is sent to it until it registers again.
create function relevo.unregister_installation(installation uuid) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  update relevo.device_installations set active = false, updated_at = now() where installation_id = installation and active;
  return found;
end
$$;

-- Unregisters every installation of an owner, and tells how many.
create function relevo.unregister_owner(of_owner text) returns int
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  many int;
begin
  perform relevo.check_owner(of_owner);
  perform from relevo.device_installations i where i.owner = of_owner order by i.installation_id for no key update;
  update relevo.device_installations set active = false, updated_at = now() where owner = of_owner and active;
  get diagnostics many = row_count;
  return many;
end
$$;

-- Takes all that events say from them, and ends those that are not through; a hash of their keys stays, for it dedups.
create function relevo.blank_events(ids bigint[], why text) returns void language plpgsql volatile
as $$
begin
  perform relevo.end_event(e, 'cancelled', why) from unnest(ids) as e;
  update relevo.notification_events
     set event_key = relevo.hidden_key(event_type, event_key), title = 'forgotten', body = '', data = '{}', push = '{}', content_hash = '',
         match_topics = '{}', match_rubros = '{}', match_region = null, match_tipo = null, match_monto = null, match_moneda = null,
         match_words = null, end_reason = case when end_reason is not null then why end
   where id = any (ids);
end
$$;

-- Forgets a person: the installation with all that leads to anybody, and what was said to it alone, but for a hash of its key, which
-- dedups. Deliveries keep a random key.
create or replace function relevo.forget_installation(installation uuid) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  known boolean;
  alone bigint[];
begin
  delete from relevo.device_installations where installation_id = installation;
  known := found;
  alone := array(select a.event_id from relevo.event_audience a
                  where a.installation_id = installation
                    and not exists (select from relevo.event_audience o where o.event_id = a.event_id and o.installation_id <> installation));
  perform relevo.blank_events(alone, 'the installation was forgotten');
  delete from relevo.event_audience where installation_id = installation;
  return known or cardinality(alone) > 0;
end
$$;

-- Forgets an owner: the installations, what was said to them or to the owner alone, and the name; tells how many installations there were.
create function relevo.forget_owner(of_owner text) returns int
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  many int;
begin
  perform relevo.check_owner(of_owner);
  select count(*) filter (where relevo.forget_installation(i.installation_id)) into many
    from (select i.installation_id from relevo.device_installations i where i.owner = of_owner order by i.installation_id for update) i;
  perform relevo.blank_events(array(
    select o.event_id from relevo.event_owners o
     where o.owner = of_owner and not exists (select from relevo.event_owners n where n.event_id = o.event_id and n.owner <> of_owner)),
    'its owner was forgotten');
  delete from relevo.event_owners where owner = of_owner;
  delete from relevo.event_completions where owner = of_owner;
  return many;
end
$$;

-- The installations of one slice of an event's audience: those between two sequence numbers that may receive it and asked for it.
create or replace function relevo.slice_targets(event_id bigint, kind text, buckets text[], after_seq bigint, upto_seq bigint)
  returns table (installation_id uuid, project text, provider text) language sql stable
as $$
  select i.installation_id, i.project, i.provider
    from relevo.notification_events e
    cross join (
      select distinct x.seq
        from relevo.notification_events e
        join relevo.preference_index x on x.bucket = any (slice_targets.buckets) and x.seq > after_seq and x.seq <= upto_seq
       where slice_targets.kind = 'matching' and e.id = slice_targets.event_id
         and (x.sure or exists (select from relevo.notification_preferences p
                                  where p.installation_id = x.installation_id and p.name = x.name
                                    and relevo.preference_matches(p, e)))) c
    join relevo.device_installations i on i.seq = c.seq and i.seq > after_seq and i.seq <= upto_seq
   where slice_targets.kind = 'matching' and e.id = slice_targets.event_id
     and relevo.may_receive(i) and (e.category is null or e.category <> all (i.opt_outs))
  union all
  select i.installation_id, i.project, i.provider
    from relevo.notification_events e
    join relevo.device_installations i on i.seq > after_seq and i.seq <= upto_seq
   where slice_targets.kind = 'everyone' and e.id = slice_targets.event_id and not i.for_news
     and relevo.may_receive(i) and (e.category is null or e.category <> all (i.opt_outs))
  union all
  select (n.phone).installation_id, (n.phone).project, (n.phone).provider
    from relevo.notification_events e
    join relevo.event_audience a on a.event_id = e.id
    -- looked up one by one: few are named, and a walk along all phones would find the newest last
    cross join lateral (select i as phone from relevo.device_installations i where i.installation_id = a.installation_id offset 0) n
   where slice_targets.kind = 'installations' and e.id = slice_targets.event_id
     and (n.phone).seq > after_seq and (n.phone).seq <= upto_seq
     and relevo.may_receive(n.phone) and (e.category is null or e.category <> all ((n.phone).opt_outs))
  union all
  select (n.phone).installation_id, (n.phone).project, (n.phone).provider
    from relevo.notification_events e
    join relevo.event_owners o on o.event_id = e.id
    cross join lateral (select i as phone from relevo.device_installations i where i.owner = o.owner offset 0) n
   where slice_targets.kind = 'installations' and e.id = slice_targets.event_id
     and (n.phone).seq > after_seq and (n.phone).seq <= upto_seq
     and relevo.may_receive(n.phone) and (e.category is null or e.category <> all ((n.phone).opt_outs))
$$;

-- Fans out small personal events, which the caller has picked and locked, from beginning to end, and names their deliveries' events and
-- phones if they are watched. Nothing at all if today's month is sealed.
create or replace function relevo.fan_out_events_1(of_events bigint[], watched boolean, given_at timestamptz)
  returns table (created int, events bigint[], installations uuid[])
  language plpgsql volatile
as $$
declare
  at timestamptz := coalesce(given_at, now());
  today date := (at at time zone 'UTC')::date;
begin
  perform relevo.ensure_partitions(today, 1);
  if relevo.hold_open(array[today]) = '{}' then
    return;
  end if;
  return query
  with targets as materialized ( -- an event that reaches nobody stands here once, without a phone
    select g.place, e.id as event_id, e.event_type, e.lane, e.at_most_once, e.deadline_at, t.installation_id, t.provider, t.project
      from unnest(of_events) with ordinality as g(id, place)
      cross join lateral (select * from relevo.notification_events e where e.id = g.id offset 0) e
      left join lateral (
        select (n.phone).installation_id, (n.phone).provider, relevo.sending_project((n.phone).provider, (n.phone).project) as project
          from (select p.phone from relevo.event_audience a
                  cross join lateral (select i as phone from relevo.device_installations i where i.installation_id = a.installation_id offset 0) p
                 where a.event_id = e.id
                union all
                select p.phone from relevo.event_owners o
                  cross join lateral (select i as phone from relevo.device_installations i where i.owner = o.owner offset 0) p
                 where o.event_id = e.id) n
         where relevo.may_receive(n.phone) and (e.category is null or e.category <> all ((n.phone).opt_outs))
           and not exists (select from relevo.event_followers f -- whoever got what this event follows is not told again
                             join relevo.notification_events o on o.id = f.former_event_id
                             join relevo.notification_deliveries d
                               on d.event_day = o.event_day and d.notification_event_id = o.id and d.installation_id = (n.phone).installation_id
                            where f.event_id = e.id and d.status in ('sent', 'ok', 'unconfirmed', 'unknown'))) t on true
  ), made as (
    insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, provider, project, lane,
                                                at_most_once, deadline_at, created_at)
    select today, t.event_id, t.installation_id, t.event_type, t.provider, t.project, t.lane, t.at_most_once, t.deadline_at, now()
      from targets t
     where t.installation_id is not null
     order by t.place
    returning id, notification_event_id, installation_id, event_type, project, lane, created_at
  ), queued as (
    insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                                   ids, installations)
    select m.project, m.lane, at, today, m.notification_event_id, m.event_type, m.created_at, 0, 0, false, array_agg(m.id), array_agg(m.installation_id)
      from made m
     group by m.project, m.lane, m.notification_event_id, m.event_type, m.created_at
     order by min(m.id)
  ), counted as materialized (
    select t.event_id, count(t.installation_id)::int as deliveries from targets t group by t.event_id
  ), fanned as (
    update relevo.notification_events e
       set state = 'fanned', event_day = today, fanout_started_at = at, fanout_finished_at = at, updated_at = at,
           fanout_upto = u.seq, fanout_cursor = u.seq, targets_selected = c.deliveries, deliveries_created = c.deliveries
      from counted c
      cross join (select coalesce(max(i.seq), 0) as seq from relevo.device_installations i) u
     where e.id = c.event_id
  ), progress as (
    insert into relevo.event_progress_deltas (event_id, status, deliveries)
    select c.event_id, 'pending', c.deliveries from counted c where c.deliveries > 0
  )
  select count(*)::int, case when watched then array_agg(m.notification_event_id) end, case when watched then array_agg(m.installation_id) end from made m;
end
$$;

-- Looks where the deliveries of some chunks go, and what stands in the way of each, as it is now.
create or replace function relevo.look_at_1(chunks relevo.due_chunks[], at timestamptz)
  returns table (event_day date, id bigint, event_id bigint, installation_id uuid, event_type text, provider text, project text, lane text,
                 at_most_once boolean, status text, attempt_count smallint, lapse_count smallint, deadline_at timestamptz, token text,
                 token_version int, platform text, locale text, obstacle text, seconds_left float8, created_at timestamptz)
  language sql stable
as $$
  select c.event_day, u.id, c.event_id, u.installation_id, c.event_type, relevo.provider_of(c.project), c.project, c.lane,
         coalesce(e.at_most_once, false), case when c.attempt_count > 0 then 'retryable' else 'pending' end, c.attempt_count, c.lapse_count,
         e.deadline_at, i.token, i.token_version, i.platform, i.locale,
         case when e.id is null then 'event_gone'
              when e.ended_at is not null then 'event_ended'
              when i.handled_before >= c.created_at then 'handled_elsewhere'
              when i.owner is not null and (select exists (select from relevo.event_completions)) and exists (
                select from relevo.event_completions h where h.event_id = c.event_id and h.owner = i.owner) then 'handled_elsewhere'
              when e.deadline_at <= at then 'deadline_passed'
              when i.installation_id is null then 'installation_gone'
              when not relevo.may_receive(i) then 'not_allowed'
              when e.category = any (i.opt_outs) then 'opted_out'
              when e.audience = 'matching' and not exists (
                select from relevo.notification_preferences p
                 where p.installation_id = u.installation_id and relevo.preference_matches(p, e)) then 'preference_changed'
              when c.lane = 'bulk' and (select exists (select from relevo.event_repeats r where r.held_at is not null)) and exists (
                select from relevo.event_repeats r where r.event_id = c.event_id and r.held_at is not null) then 'repeats_held'
         end,
         extract(epoch from e.deadline_at - at)::float8, c.created_at
    from unnest(chunks) c
    left join relevo.notification_events e on e.id = c.event_id
    cross join lateral unnest(c.ids, c.installations) as u(id, installation_id)
    left join relevo.device_installations i on i.installation_id = u.installation_id
$$;

-- The functions that make up the door.
create function relevo.door_functions() returns text[] language sql immutable
return array['enqueue(jsonb)', 'enqueue_many(jsonb)', 'event_id(text, text)', 'get_event(bigint)', 'cancel(bigint, text)',
  'complete(bigint, text)', 'complete_installation(uuid, text)', 'complete_owner(text, bigint, text)', 'delete_events(bigint[])',
  'register_installation(jsonb)', 'list_installations(text, int)', 'unregister_installation(uuid)', 'unregister_owner(text)',
  'forget_installation(uuid)', 'forget_owner(text)', 'set_preference(uuid, text, jsonb)', 'subscribe_news(jsonb)', 'read_news(text, bigint, int)',
  'acknowledge_news(text, bigint)'];

-- Lets a role use the door: enqueue and its kin, registration, nothing of the tables.
create or replace function relevo.grant_door(role_name text) returns void language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  door text;
begin
  if not exists (select from pg_roles r where r.rolname = role_name) then
    raise exception using errcode = 'undefined_object', message = format('role %s does not exist', role_name);
  end if;
  execute format('grant usage on schema relevo to %I', role_name);
  foreach door in array relevo.door_functions() loop
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
  perform relevo.grant_door(r.rolname) from pg_temp.door_roles r;
end
$$;

-- needs relevo 0.2.0
-- The app's side. A known type and key with other content is refused, with what differs; lists are written in one order, whatever order they
-- come in; who does not read committed wakes all, for it cannot see who sleeps; deleting leaves sealed months alone; and an event that shows
-- nothing, is nested too deeply, or says for whom it is in two ways is refused.

-- Tells whether a text shows nothing: it is empty, or white space and characters without width.
create function relevo.is_blank(said text) returns boolean
  language sql immutable
return coalesce(said, '') !~ '[^\t-\r\x1c-\x20\x85\xa0\u00ad\u1680\u180e\u2000-\u200f\u2028\u2029\u202f\u205f\u2060\u3000\ufeff]';

-- Tells whether a JSON value is nested deeper than 100 levels.
create function relevo.is_too_deep(value jsonb) returns boolean
  language sql immutable
return jsonb_path_exists(value, 'strict $.**{100} ? (@.type() == "object" || @.type() == "array")');

-- Tells of the usual event that nothing is wrong with it; of any other it says nothing.
create or replace function relevo.is_plain_event(event jsonb) returns boolean
  language plpgsql immutable
as $$
begin
  return jsonb_typeof(event) = 'object'
     and event - array['type', 'key', 'title', 'body', 'data', 'push', 'audience', 'installations', 'owners', 'category', 'lane', 'at_most_once',
                       'scheduled_at', 'deadline_at', 'ttl_s', 'on_conflict'] = '{}'
     and jsonb_typeof(event -> 'type') = 'string' and length(event ->> 'type') <= 100 and btrim(event ->> 'type') <> ''
     and jsonb_typeof(event -> 'key') = 'string' and length(event ->> 'key') <= 300 and btrim(event ->> 'key') <> ''
     and jsonb_typeof(event -> 'title') = 'string' and length(event ->> 'title') <= 500
     and (ascii(event ->> 'title') between 33 and 126 or not relevo.is_blank(event ->> 'title')) -- most begin with a letter
     and coalesce(jsonb_typeof(event -> 'body') in ('string', 'null') and length(event ->> 'body') <= 2000, event ->> 'body' is null)
     and coalesce(jsonb_typeof(event -> 'category') in ('string', 'null') and length(event ->> 'category') between 1 and 100, event ->> 'category' is null)
     and coalesce(jsonb_typeof(event -> 'data') in ('object', 'null') and not relevo.is_too_deep(event -> 'data'), true)
     and coalesce(event ->> 'on_conflict' in ('refuse', 'keep'), true)
     and case when event ->> 'push' is null then true
              when jsonb_typeof(event -> 'push') = 'object' then event ->> 'push' = '{}' or relevo.push_complaint(event -> 'push') is null end
     and coalesce(event ->> 'lane' in ('urgent', 'bulk'), true)
     and coalesce(jsonb_typeof(event -> 'at_most_once') in ('boolean', 'null'), true)
     and case when event ->> 'ttl_s' is null then true
              when jsonb_typeof(event -> 'ttl_s') <> 'number' then false
              else (event ->> 'ttl_s')::numeric between 1 and 2419200 and (event ->> 'ttl_s')::numeric % 1 = 0 end
     and case event ->> 'audience'
              when 'installations' then
                case when jsonb_typeof(event -> 'installations') = 'array' and jsonb_array_length(event -> 'installations') <= 1000 then
                  -- as one pattern it would cost half of the whole check, as a subquery more than that
                  event ->> 'installations'
                    like '["' || repeat('________-____-____-____-____________", "', jsonb_array_length(event -> 'installations') - 1)
                         || '________-____-____-____-____________"]'
                  and replace(event ->> 'installations', '", "', '') ~ '^\["[0-9a-fA-F-]+"]$'
                  and length(replace(replace(event ->> 'installations', '", "', ''), '-', '')) = 4 + 32 * jsonb_array_length(event -> 'installations')
                end
                and event ->> 'owners' is null
              when 'owners' then
                case when jsonb_typeof(event -> 'owners') = 'array' then jsonb_array_length(event -> 'owners') <= 1000 end
                and length(event ->> 'owners') <= 204 -- then none is longer than 200; of more, check_event counts each
                and event ->> 'owners' ~ '^\["[^"\\]+"(?:, "[^"\\]+")*]$'
                and event ->> 'installations' is null
              when 'everyone' then event ->> 'installations' is null and event ->> 'owners' is null
              else false end
     and octet_length(event::text) <= 3400;
end
$$;

-- Refuses an event that does not say, in one way, for whom it is.
create or replace function relevo.check_audience(event jsonb) returns void
  language plpgsql stable
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
  if event ->> 'audience' <> 'matching' and matching <> '{}' then
    perform relevo.refuse('matching says for whom an event is: with matching, audience must be matching');
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

-- Refuses an event with the first thing that is wrong with it.
create or replace function relevo.check_event(event jsonb) returns void
  language plpgsql stable
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
                         'lane', 'at_most_once', 'scheduled_at', 'deadline_at', 'ttl_s', 'licitacion_id', 'on_conflict']);
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
  if relevo.is_blank(event ->> 'title') and relevo.is_blank(event ->> 'body') and coalesce(nullif(event -> 'data', 'null'), '{}') = '{}' then
    perform relevo.refuse('an event must say something: give it a title, a body or data');
  end if;
  if relevo.is_too_deep(event -> 'data') then
    perform relevo.refuse('data is nested too deeply: at most 100 levels are taken');
  end if;
  if event ->> 'on_conflict' <> all (array['refuse', 'keep']) then
    perform relevo.refuse('on_conflict must be refuse or keep');
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

-- Writes every number of a JSON value without zeros at its end.
create function relevo.trim_numbers(value jsonb) returns jsonb
  language plpgsql immutable
as $$
begin
  return case jsonb_typeof(value)
    when 'object' then (select coalesce(jsonb_object_agg(o.key, relevo.trim_numbers(o.value)), '{}') from jsonb_each(value) o)
    when 'array' then (select coalesce(jsonb_agg(relevo.trim_numbers(a.value) order by a.place), '[]') from jsonb_array_elements(value) with ordinality as a(value, place))
    when 'number' then to_jsonb(trim_scale((value #>> '{}')::numeric))
    else value end;
end
$$;

-- Returns the list under a name without doubles and in one order.
create function relevo.sort_list(given jsonb, name text) returns jsonb
  language sql immutable
return (select jsonb_build_object(name, coalesce(jsonb_agg(distinct (l.one collate "C")), '[]')) from jsonb_array_elements_text(given -> name) as l(one));

-- Hashes what an event says. One for some phones or owners as it came: while it is there its row tells more, and with its row its hash goes.
-- Any other is known for good, so in one form: fields that say nothing are not told from missing ones, nor are other orders of keys and of
-- lists that are sets, other spellings of a number, or of a time.
create function relevo.content_hash(event jsonb, at timestamptz, until timestamptz) returns text
  language plpgsql immutable
as $$
declare
  said jsonb := jsonb_strip_nulls(event - 'on_conflict');
begin
  if said ->> 'audience' not in ('installations', 'owners') then
    said := relevo.trim_numbers('{"title": "", "body": "", "data": {}, "push": {}}'::jsonb || said);
    if said ? 'topics' then
      said := said || relevo.sort_list(said, 'topics');
    end if;
    if said -> 'matching' ? 'rubros' then
      said := jsonb_set(said, '{matching}', (said -> 'matching') || relevo.sort_list(said -> 'matching', 'rubros'));
    end if;
    if said ? 'scheduled_at' then
      said := said || jsonb_build_object('scheduled_at', extract(epoch from at));
    end if;
    if said ? 'deadline_at' then
      said := said || jsonb_build_object('deadline_at', extract(epoch from until));
    end if;
  end if;
  return encode(sha256(convert_to(said::text, 'UTF8')), 'hex');
end
$$;

-- Writes events, and tells of each whether it is new, and if not, whether it says the same; one that another made meanwhile has no id here.
create or replace function relevo.write_events(events jsonb) returns table(event_id bigint, created boolean, same_content boolean, unknown_installations uuid[])
  language plpgsql
  set jit = off
  set enable_seqscan = off
as $$
declare
  many boolean := jsonb_array_length(events) > 1; -- of one alone nobody asks which
begin
  return query
  with given as materialized (
    select g.ord, g.event, g.event ->> 'type' as event_type,
           -- its own, and the one by which it is known if it was personal and is old or forgotten
           array[g.event ->> 'key', relevo.hidden_key(g.event ->> 'type', g.event ->> 'key')] as keys,
           case when g.event ->> 'audience' in ('installations', 'owners') and not g.event ? 'on_conflict' -- most are: as content_hash does it
                then encode(sha256(convert_to(jsonb_strip_nulls(g.event)::text, 'UTF8')), 'hex')
                else relevo.content_hash(g.event, g.at, g.until) end as hash,
           g.event -> 'matching' as matching,
           case when jsonb_typeof(g.event -> 'installations') is distinct from 'array' then '{}'
                when jsonb_array_length(g.event -> 'installations') = 1 then array[(g.event -> 'installations' ->> 0)::uuid] -- most name one
                else array(select i.installation::uuid from jsonb_array_elements_text(g.event -> 'installations') as i(installation)) end as installations,
           g.at, g.until
      from (select g.ord, g.event,
                   coalesce(case when g.event ? 'scheduled_at' then relevo.event_time_1(g.event, 'scheduled_at', case when many then g.ord end) end, now()) as at,
                   case when g.event ? 'deadline_at' then relevo.event_time_1(g.event, 'deadline_at', case when many then g.ord end) end as until
              from jsonb_array_elements(events) with ordinality as g(event, ord) offset 0) g
  ), looked_up as (
    select g.*, coalesce(n.id, k.event_id) as known_id, strpos(nullif(coalesce(n.content_hash, k.content_hash), ''), g.hash) > 0 as same_hash
      from given g
      left join lateral (select n.id, n.content_hash from relevo.notification_events n
                          where n.event_type = g.event_type and n.event_key = any (g.keys) limit 1) n on true
      left join lateral (select k.event_id, k.content_hash from relevo.event_keys k
                          where n.id is null and k.event_type = g.event_type and k.event_key = any (g.keys) limit 1) k on true
  ), numbered as materialized (
    select l.*, case when l.known_id is null then nextval('relevo.notification_events_id_seq') end as new_id
      from (select * from looked_up order by ord) l
  ), made as (
    insert into relevo.notification_events as n (id, event_type, event_key, licitacion_id, title, body, data, push, audience, category,
      lane, at_most_once, scheduled_at, deadline_at, match_topics, match_rubros, match_region, match_tipo, match_monto, match_moneda, match_words,
      content_hash)
    select m.new_id, m.event_type, m.keys[1], (m.event ->> 'licitacion_id')::numeric::bigint, coalesce(m.event ->> 'title', ''),
           coalesce(m.event ->> 'body', ''), coalesce(nullif(m.event -> 'data', 'null'), '{}'), coalesce(nullif(m.event -> 'push', 'null'), '{}'),
           case m.event ->> 'audience' when 'owners' then 'installations' else m.event ->> 'audience' end, m.event ->> 'category',
           coalesce(m.event ->> 'lane', t.lane, 'bulk'), coalesce((m.event ->> 'at_most_once')::boolean, t.at_most_once, false), m.at,
           relevo.check_deadline_1(coalesce(m.until, m.at + coalesce((m.event ->> 'ttl_s')::numeric::int, t.ttl_s) * interval '1 second'), m.at,
                                   case when many then m.ord end),
           case when m.event -> 'topics' <> 'null' then array(select distinct jsonb_array_elements_text(m.event -> 'topics')) else '{}' end,
           case when m.matching -> 'rubros' <> 'null' then array(select jsonb_array_elements_text(m.matching -> 'rubros')) else '{}' end,
           relevo.region_key(m.matching ->> 'region'), m.matching ->> 'tipo', (m.matching ->> 'monto')::numeric, m.matching ->> 'moneda',
           relevo.words(m.matching ->> 'text'), m.hash
      from numbered m
      left join lateral (select t.* from relevo.event_types t where t.event_type = m.event_type offset 0) t on true
     where m.new_id is not null
     order by m.event_type collate "C", m.keys[1] collate "C" -- in the order of all who write the same: nobody waits crosswise
    on conflict (event_type, event_key) do nothing
    returning n.id
  ), named as (
    insert into relevo.event_audience (event_id, installation_id)
    select m.new_id, i.installation
      from numbered m
      cross join lateral unnest(case when cardinality(m.installations) > 1 then array(select distinct unnest(m.installations))
                                     else m.installations end) as i(installation)
     where (m.new_id in (select w.id from made w)) is true -- looked up in a hash: "is true" keeps it from becoming a join
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
         case when cardinality(m.installations) > 0 then
           array(select i.installation
                   from unnest(m.installations) as i(installation)
                   left join lateral (select true as known from relevo.device_installations d
                                       where d.installation_id = i.installation offset 0) d on true
                  where d.known is null)
           else '{}' end
    from numbered m
   order by m.ord;
end
$$;

-- Tells what an event says as it is compared, field by field; lists that are sets in one order.
create function relevo.event_said(e relevo.notification_events) returns jsonb
  language sql stable
as $$
  select jsonb_build_object('audience', case when o.names <> '[]' then 'owners' else e.audience end, 'title', e.title, 'body', e.body,
           'category', e.category, 'lane', e.lane, 'at_most_once', e.at_most_once,
           'data', jsonb_strip_nulls(e.data), 'push', jsonb_strip_nulls(e.push),
           'matching', jsonb_strip_nulls(jsonb_build_object('rubros', relevo.sort_list(jsonb_build_object('r', e.match_rubros), 'r') -> 'r', 'region', e.match_region,
                       'tipo', e.match_tipo, 'monto', e.match_monto, 'moneda', e.match_moneda, 'text', e.match_words)),
           'topics', relevo.sort_list(jsonb_build_object('t', e.match_topics), 't') -> 't', 'owners', o.names,
           'installations', (select coalesce(jsonb_agg(a.installation_id order by a.installation_id), '[]') from relevo.event_audience a where a.event_id = e.id))
    from (select coalesce(jsonb_agg(n.owner order by n.owner collate "C"), '[]') as names from relevo.event_owners n where n.event_id = e.id) o
$$;

-- Shows the beginning of a value in a complaint.
create function relevo.shown(value jsonb) returns text
  language sql immutable
return case when value is null or value = 'null' then 'not given'
            when jsonb_typeof(value) = 'string' and length(value #>> '{}') > 30 then to_jsonb(left(value #>> '{}', 30) || '…')::text
            else value::text end;

-- Names the fields in which two contents differ. What data and push hold may be a secret, and is not repeated.
create function relevo.name_differences(was jsonb, given jsonb) returns text[]
  language sql immutable
as $$
  select array_agg(case
           when f.name in ('data', 'push', 'matching') then format('%s differs in %s', f.name, (
             select string_agg(left(k.name, 60), ', ' order by k.name)
               from (select k.name from jsonb_object_keys((was -> f.name) || (given -> f.name)) as k(name)
                      where was -> f.name -> k.name is distinct from given -> f.name -> k.name
                      order by k.name limit 5) k))
           when f.name in ('owners', 'installations', 'topics') then
             format('%s differ (%s named, %s given)', f.name, jsonb_array_length(was -> f.name), jsonb_array_length(given -> f.name))
           else format('%s is %s, given %s', f.name, relevo.shown(was -> f.name), relevo.shown(given -> f.name)) end order by f.place)
    from unnest(array['audience', 'owners', 'installations', 'topics', 'matching', 'title', 'body', 'data', 'push', 'category', 'lane',
                      'at_most_once']) with ordinality as f(name, place)
   where was -> f.name is distinct from given -> f.name
$$;

-- Tells in what an event differs from the one that is there, of whose hash it is not: null if they say the same all the same.
create function relevo.content_difference(event jsonb, id_of_event bigint) returns text
  language plpgsql
as $$
declare
  old relevo.notification_events;
  hashes text;
  tried bigint;
  found_out text[];
  at timestamptz;
  until timestamptz;
begin
  select n.* into old from relevo.notification_events n where n.id = id_of_event;
  select coalesce(old.content_hash, (select k.content_hash from relevo.event_keys k where k.event_id = id_of_event)) into hashes;
  -- the form of hashes before 0.3
  if strpos(hashes, encode(sha256(convert_to(jsonb_strip_nulls(event - 'on_conflict')::text, 'UTF8')), 'hex')) > 0 then
    return null;
  end if;
  if old.id is null then
    return '; it was archived, so what differs is not known';
  end if;
  at := relevo.event_time_1(event, 'scheduled_at', null);
  until := coalesce(relevo.event_time_1(event, 'deadline_at', null), old.scheduled_at + interval '1 second' * coalesce(
    (event ->> 'ttl_s')::numeric::int, (select t.ttl_s from relevo.event_types t where t.event_type = event ->> 'type')));
  begin -- written as a new one would be, and undone
    select w.event_id into tried from relevo.write_events(jsonb_build_array(
      event - array['scheduled_at', 'deadline_at', 'ttl_s'] || jsonb_build_object('key', 'compared ' || gen_random_uuid()))) w;
    select relevo.name_differences(relevo.event_said(old), relevo.event_said(n)) into found_out
      from relevo.notification_events n where n.id = tried;
    raise exception using errcode = 'RLV00', message = 'undone';
  exception when sqlstate 'RLV00' then
    null;
  end;
  found_out := found_out || case when coalesce(at, old.created_at) <> old.scheduled_at then array['scheduled_at differs'] end
                         || case when until is distinct from old.deadline_at then array['deadline_at differs'] end;
  return ': ' || array_to_string(nullif(found_out, '{}'), '; ');
end
$$;

-- Refuses the first event that is known and says something else, unless what is there is to be kept; tells of the others whether they say the
-- same. Events of items follow their source, those of Relevo itself are nobody's to mend.
create function relevo.refuse_conflicts(events jsonb, ids bigint[], sames boolean[]) returns boolean[]
  language plpgsql
as $$
declare
  event jsonb;
  differs text;
begin
  for n in 1 .. cardinality(ids) loop
    continue when sames[n] is distinct from false;
    event := events -> (n - 1);
    continue when event ->> 'on_conflict' = 'keep' or event ->> 'licitacion_id' is not null or starts_with(event ->> 'type', 'relevo.');
    differs := relevo.content_difference(event, ids[n]);
    if differs is not null then
      raise exception using errcode = '23R01',
        message = format('%sThe event of type %s and key %s is there and says something else%s', case when cardinality(ids) > 1 then format('events.%s: ', n - 1) end,
          to_jsonb(event ->> 'type'), to_jsonb(left(event ->> 'key', 100)), differs),
        hint = 'Another event needs another key; "on_conflict": "keep" keeps what is there.';
    end if;
    sames[n] := true;
  end loop;
  return sames;
end
$$;

-- Enqueues events of whatever type.
create or replace function relevo.enqueue_any_type(events jsonb) returns table(event_id bigint, created boolean, same_content boolean, unknown_installations uuid[])
  language plpgsql security definer
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
  perform relevo.check_events(events);
  select array_agg(w.event_id), array_agg(w.created), array_agg(w.same_content), array_agg(case when cardinality(w.unknown_installations) > 0 then w.unknown_installations::text end)
    into ids, news, sames, strangers from relevo.write_events(events) w;
  for n in 1 .. coalesce(cardinality(ids), 0) loop
    while ids[n] is null loop
      select w.* into one from relevo.write_events(jsonb_build_array(events -> (n - 1))) w;
      ids[n] := one.event_id;
      news[n] := one.created;
      sames[n] := one.same_content;
    end loop;
  end loop;
  if false = any (sames) then
    sames := relevo.refuse_conflicts(events, ids, sames);
  end if;
  if true = any (news) and relevo.any_urgent(events) then
    perform relevo.wake_now('fanout');
  elsif true = any (news) then
    perform relevo.wake('fanout');
  end if;
  return query select u.id, u.new, u.same, coalesce(u.strangers::uuid[], '{}') from unnest(ids, news, sames, strangers) as u(id, new, same, strangers);
end
$$;

-- Changes an event that has not started yet into what is given.
create or replace function relevo.change(event jsonb) returns boolean
  language plpgsql security definer
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
         -- what it said before is known as the same event, too: at first, and the last nine times
         content_hash = concat_ws(' ', relevo.content_hash(event, n.scheduled_at, relevo.event_time_1(event, 'deadline_at', null)), left(old.content_hash, 8 * 65 - 1), case when length(old.content_hash) >= 8 * 65 then right(old.content_hash, 64) end)
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

-- Writes installations of which none shares its id or token with another.
create or replace function relevo.write_installations(given jsonb) returns uuid[]
  language plpgsql
  set enable_seqscan = off
as $$
declare
  ids uuid[];
  tokens text[];
  changed int;
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
  get diagnostics changed = row_count;
  if changed > 0 and coalesce(current_setting('relevo.expects', true), '') like '%free token%' then
    raise exception using errcode = 'lock_not_available', message = 'the token was taken by another installation meanwhile';
  end if;
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
  get diagnostics changed = row_count;
  if changed > 0 and coalesce(current_setting('relevo.expects', true), '') like '%new installation%' then
    raise exception using errcode = 'lock_not_available', message = 'the installation was registered by another meanwhile';
  end if;
  -- only the first time: whoever removed it since wants no pushes, however often the app registers
  with made as (
    insert into relevo.device_installations (installation_id, token, provider, project, platform, locale, owner, push_capable, permission, opt_outs)
    select ids[g.ord], g.i ->> 'token', coalesce(g.i ->> 'provider', 'expo'), coalesce(g.i ->> 'project', 'default'),
           coalesce(g.i ->> 'platform', 'unknown'), g.i ->> 'locale', g.i ->> 'owner', coalesce((g.i ->> 'push_capable')::boolean, true),
           coalesce(g.i ->> 'permission', 'granted'), array(select jsonb_array_elements_text(coalesce(nullif(g.i -> 'opt_outs', 'null'), '[]')))
      from jsonb_array_elements(given) with ordinality as g(i, ord)
      left join lateral (select true as known from relevo.device_installations d where d.installation_id = ids[g.ord] offset 0) d on true
     where d.known is null
     order by g.i ->> 'token' collate "C", ids[g.ord] -- in the order of all who write the same: nobody waits crosswise
    returning installation_id
  )
  insert into relevo.notification_preferences (installation_id, name) select m.installation_id, 'default' from made m on conflict do nothing;
  return ids;
end
$$;

-- Deletes events, so much of their deliveries as is quickly done, and leaves the rest to a reaper.
create or replace function relevo.delete_events(event_ids bigint[]) returns integer
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  gone relevo.notification_events;
  done record;
  open_days date[];
  most int := 5000;
  deleted int := 0;
begin
  -- of a month that is sealed nothing is deleted: it is in the archive already
  open_days := relevo.hold_open(array(select distinct e.event_day from relevo.notification_events e
                                       where e.id = any (event_ids) and e.event_day is not null));
  for gone in select e.* from relevo.notification_events e
               where e.id = any (event_ids) and (e.event_day is null or e.event_day = any (open_days))
               order by e.id for update loop -- in the order of all who write the same
    delete from relevo.notification_events e where e.id = gone.id;
    deleted := deleted + 1;
    continue when gone.event_day is null; -- never fanned out
    select * into done from relevo.delete_some_1(gone.id, gone.event_day, null, most);
    most := greatest(most - done.deleted, 0);
    if not done.finished then
      insert into relevo.deleted_events (event_id, event_day, deleted_to) values (gone.id, gone.event_day, done.last_phone);
    end if;
  end loop;
  return deleted;
end
$$;

-- Wakes a cycle, if it sleeps.
create or replace function relevo.wake(cycle_name text) returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  called text[];
begin
  if coalesce(current_setting('relevo.wake', true), '') = 'off' then
    return; -- so wished, as by who is going to PREPARE TRANSACTION, where no NOTIFY may be
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    perform pg_notify('relevo_wake', cycle_name); -- who sleeps now is not to be seen from here: all are asked
    return;
  end if;
  if not exists (select from relevo.cycle_state s where s.cycle = cycle_name and s.source = '' and s.asleep) then
    return;
  end if;
  called := array(
    select w.worker_id from relevo.workers w
     where cycle_name = any (w.asleep) and w.stopped_at is null and w.lost_at is null and w.stopping_at is null and w.wakeups = 'listening'
       and w.last_seen_at + w.lease_ms * interval '1 millisecond' > now()
     order by md5(w.worker_id || pg_current_xact_id()::text)
     limit 2);
  if called = '{}' then -- nobody is known to hear it: all are asked
    perform pg_notify('relevo_wake', cycle_name);
  else
    perform pg_notify('relevo_wake', cycle_name || ' ' || c.worker_id) from unnest(called) as c(worker_id);
  end if;
end
$$;

-- Wakes a cycle, whether it is known to sleep or not.
create or replace function relevo.wake_now(cycle_name text) returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  called text[];
begin
  if coalesce(current_setting('relevo.wake', true), '') = 'off' then
    return; -- so wished, as by who is going to PREPARE TRANSACTION, where no NOTIFY may be
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    perform pg_notify('relevo_wake', cycle_name); -- who sleeps now is not to be seen from here: all are asked
    return;
  end if;
  called := array(
    select w.worker_id from relevo.workers w
     where cycle_name = any (w.cycles) and w.stopped_at is null and w.lost_at is null and w.stopping_at is null and w.wakeups = 'listening'
       and w.last_seen_at + w.lease_ms * interval '1 millisecond' > now()
     order by cycle_name = any (w.asleep) desc, md5(w.worker_id || pg_current_xact_id()::text)
     limit 2);
  if called = '{}' then -- nobody is known to hear it: all are asked
    perform pg_notify('relevo_wake', cycle_name);
  else
    perform pg_notify('relevo_wake', cycle_name || ' ' || c.worker_id) from unnest(called) as c(worker_id);
  end if;
end
$$;

revoke all on function relevo.is_blank(text), relevo.is_too_deep(jsonb), relevo.trim_numbers(jsonb), relevo.sort_list(jsonb, text),
  relevo.content_hash(jsonb, timestamptz, timestamptz), relevo.event_said(relevo.notification_events), relevo.shown(jsonb), relevo.name_differences(jsonb, jsonb),
  relevo.content_difference(jsonb, bigint), relevo.refuse_conflicts(jsonb, bigint[], boolean[]) from public;

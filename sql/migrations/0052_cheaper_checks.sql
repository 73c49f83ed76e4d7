-- needs relevo 0.2.0
-- Enqueueing and registering cost PostgreSQL far less: a pattern that counts ({1,150}) took 72 us of each token and 22 us of each owner, and
-- lengths are compared instead; a hash is made in its caller's place.

-- The key by which an event is known once nobody may learn its own: a hash, which can be looked up and not be read.
create or replace function relevo.hidden_key(event_type text, event_key text) returns text
  language sql stable -- as convert_to is: only so it is called in its caller's place
  return case when starts_with(event_key, 'sha256:') and event_key ~ '^sha256:[0-9a-f]{64}$' then event_key
              else 'sha256:' || encode(sha256(convert_to(event_type || chr(10) || event_key, 'UTF8')), 'hex') end;

-- The beginnings of some codes. Every event has the column, few have codes: of none it is known in the caller's place.
create function relevo.prefixes_of_some(codes text[]) returns text[]
  language sql immutable strict parallel safe
  return array(select distinct left(c.code, n.n) from unnest(codes) as c(code) cross join generate_series(1, 20) as n(n)
                where n.n <= length(c.code));

create or replace function relevo.prefixes(codes text[]) returns text[]
  language sql immutable parallel safe -- not strict: only so it is called in its caller's place
  return case when cardinality(codes) = 0 then '{}'::text[] else relevo.prefixes_of_some(codes) end;

revoke all on function relevo.prefixes_of_some(text[]) from public;

-- Tells of the usual event that nothing is wrong with it, in one expression. Of any other it says nothing: check_event finds the words.
-- What is rendered of an event is at most 500 bytes longer than the event itself.
create or replace function relevo.is_plain_event(event jsonb) returns boolean
  language plpgsql immutable
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

-- Writes those of some checked events that are not known yet, in their order, and tells of each in order. One without an id was written
-- by somebody else meanwhile, or stands here twice: only a new statement sees which it is.
create or replace function relevo.write_events(events jsonb)
  returns table(event_id bigint, created boolean, same_content boolean, unknown_installations uuid[])
  language plpgsql
  set jit = off
  set enable_seqscan = off
as $$
begin
  return query
  with given as materialized (
    select g.ord, g.event, g.event ->> 'type' as event_type,
           -- its own, and the one by which it is known if it was personal and is old or forgotten
           array[g.event ->> 'key', relevo.hidden_key(g.event ->> 'type', g.event ->> 'key')] as keys,
           encode(sha256(convert_to(jsonb_strip_nulls(g.event)::text, 'UTF8')), 'hex') as hash,
           g.event -> 'matching' as matching,
           coalesce(case when g.event ? 'scheduled_at' then relevo.event_time(g.event, 'scheduled_at') end, now()) as at,
           case when g.event ? 'deadline_at' then relevo.event_time(g.event, 'deadline_at') end as until
      from jsonb_array_elements(events) with ordinality as g(event, ord)
  ), looked_up as materialized (
    select g.*, coalesce(n.id, k.event_id) as known_id, nullif(coalesce(n.content_hash, k.content_hash), '') = g.hash as same_hash,
           row_number() over (partition by g.event_type collate "C", g.keys[1] collate "C" order by g.ord) as nth
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
           case when m.matching -> 'rubros' <> 'null' then array(select jsonb_array_elements_text(m.matching -> 'rubros')) else '{}' end,
           relevo.region_key(m.matching ->> 'region'), m.matching ->> 'tipo', (m.matching ->> 'monto')::numeric, m.matching ->> 'moneda',
           relevo.words(m.matching ->> 'text'), m.hash
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

-- Tells of the usual installation that nothing is wrong with it, in one expression; of any other check_installation finds the words.
create or replace function relevo.is_plain_installation(installation jsonb) returns boolean
  language plpgsql immutable
as $$
begin
  return jsonb_typeof(installation) = 'object'
     and installation - array['installation_id', 'token', 'project', 'platform', 'locale', 'owner', 'push_capable', 'permission'] = '{}'
     and jsonb_typeof(installation -> 'token') = 'string' and length(installation ->> 'token') <= 164 -- Expo's are half as long
     and installation ->> 'token' ~ '^Expo(?:nent)?PushToken\[[^][[:space:][:cntrl:]]+]$'
     and case when installation ->> 'installation_id' is null then true
              else installation ->> 'installation_id' like '________-____-____-____-____________'
                   and installation ->> 'installation_id' ~ '^[0-9a-fA-F-]+$' and length(replace(installation ->> 'installation_id', '-', '')) = 32 end
     and coalesce(jsonb_typeof(installation -> 'project') = 'string' and length(installation ->> 'project') between 1 and 200, true)
     and coalesce(jsonb_typeof(installation -> 'locale') = 'string' and length(installation ->> 'locale') between 1 and 35, true)
     and coalesce(jsonb_typeof(installation -> 'owner') = 'string' and length(installation ->> 'owner') between 1 and 200, true)
     and coalesce(installation ->> 'platform' in ('ios', 'android', 'unknown'), true)
     and coalesce(installation ->> 'permission' in ('granted', 'denied', 'undetermined'), true)
     and coalesce(jsonb_typeof(installation -> 'push_capable') = 'boolean', true);
end
$$;

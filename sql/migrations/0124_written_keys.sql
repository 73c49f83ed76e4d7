-- needs relevo 0.3.0
-- Lets 0.3.0's function that writes events do without the constraint that the next file drops: it names no index in `on conflict`.

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
    on conflict do nothing
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

-- Writes events, and returns for each whether it is new, and if not, whether it says the same; one that another transaction made meanwhile has
-- no id here. A key is unique within its project: what others have under the same key is neither seen nor waited for.
-- Steps: read what is given, look each up by its key among events and archived keys, number the new ones, insert them with their phones
-- and owners.
create or replace function relevo.write_events(events jsonb) returns table(event_id bigint, created boolean, same_content boolean, unknown_installations uuid[])
  language plpgsql
  set jit = off
  set enable_seqscan = off
as $$
declare
  many boolean := jsonb_array_length(events) > 1; -- of one alone nobody asks which
begin
  return query
  with looked_up as (
    select g.*, k.event_id as known_id, strpos(nullif(k.content_hash, ''), g.hash) > 0 as same_hash
      from (select * from relevo.given_events(events) offset 0) g
      left join lateral relevo.known_key(g.event_type, g.keys[1], g.keys[2], g.event ->> 'project') k on true
  ), numbered as materialized (
    select l.*, case when l.known_id is null then nextval('relevo.notification_events_id_seq') end as new_id
      from (select * from looked_up order by ord) l
  ), made as (
    insert into relevo.notification_events as n (id, event_type, event_key, licitacion_id, title, body, data, push, audience, category,
      lane, at_most_once, scheduled_at, deadline_at, match_topics, match_rubros, match_region, match_tipo, match_monto, match_moneda, match_words,
      content_hash, arguments, turn_at, collapse, opens, unread_badge, batch, project, match_where, traceparent)
    select m.new_id, m.event_type, m.keys[1], (m.event ->> 'licitacion_id')::numeric::bigint, coalesce(m.event ->> 'title', ''),
           coalesce(m.event ->> 'body', ''), coalesce(nullif(m.event -> 'data', 'null'), '{}'),
           case when m.event -> 'push' ->> 'badge' = 'unread' then (m.event -> 'push') - 'badge' else coalesce(nullif(m.event -> 'push', 'null'), '{}') end,
           relevo.audience_kind(m.event), m.event ->> 'category',
           coalesce(m.event ->> 'lane', t.lane, 'bulk'), coalesce((m.event ->> 'at_most_once')::boolean, t.at_most_once, false), m.at,
           case when m.until is not null or t.ttl_s is not null or m.event ->> 'ttl_s' is not null then -- few have a deadline
             relevo.check_deadline(coalesce(m.until, m.at + coalesce((m.event ->> 'ttl_s')::numeric::int, t.ttl_s) * interval '1 second'), m.at, case when many then m.ord end) end,
           case when m.event -> 'topics' <> 'null' then array(select distinct jsonb_array_elements_text(m.event -> 'topics')) else '{}' end,
           case when m.matching -> 'rubros' <> 'null' then array(select jsonb_array_elements_text(m.matching -> 'rubros')) else '{}' end,
           relevo.region_key(m.matching ->> 'region'), m.matching ->> 'tipo', (m.matching ->> 'monto')::numeric, m.matching ->> 'moneda',
           relevo.words(m.matching ->> 'text'), m.hash, nullif(m.event -> 'arguments', 'null'), case when m.event ->> 'arguments' is not null then timestamptz '2300-01-01Z' end,
           m.event ->> 'collapse', nullif(t.opens or t.complete_on = 'opened', false), nullif(m.event -> 'push' ->> 'badge' = 'unread', false), nullif(m.event -> 'batch', 'null'), m.event ->> 'project', nullif(m.event -> 'where', 'null'), m.event ->> 'traceparent' -- the badge apart from the rest: 0.3.0 would send the word
      from numbered m
      left join lateral (select t.* from relevo.event_types t where t.event_type = m.event_type offset 0) t on true
     where m.new_id is not null order by m.event_type collate "C", m.keys[1] collate "C", m.event ->> 'project' collate "C" -- in the same order as all who write these: no deadlock
    on conflict (event_type, event_key, coalesce(project, '')) do nothing
    returning n.id
  ), named as (
    insert into relevo.event_audience (event_id, installation_id, inbox_id)
    select m.new_id, i.installation, (select d.inbox_id from relevo.device_installations d where d.installation_id = i.installation)
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
                                       where d.installation_id = i.installation and d.project = coalesce(m.event ->> 'project', d.project) offset 0) d on true
                  where d.known is null)
           else '{}' end
    from numbered m
   order by m.ord;
end
$$;

revoke all on function relevo.write_events from public;

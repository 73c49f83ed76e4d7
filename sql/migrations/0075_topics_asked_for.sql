-- needs relevo 0.2.0
-- An event that names topics goes only to phones that asked for one of them. A fresh phone, which asks for everything, got it, too.

-- The one meaning of a match, used by fan-out and again at dispatch; without a subquery, so that it is inlined. Who asks for no topic gets the
-- events that name none, and who asks for some gets the events that name one of them.
create or replace function relevo.preference_matches(p relevo.notification_preferences, e relevo.notification_events)
  returns boolean language sql immutable
  return p.enabled
     and case when p.topics is null then e.match_topics = '{}' else p.topics && e.match_topics end
     and (p.rubro_prefix is null or coalesce(p.rubro_prefix = any (e.match_prefixes), false))
     and (p.tipo is null or coalesce(relevo.text_key(btrim(p.tipo)) = relevo.text_key(btrim(e.match_tipo)), false))
     and (p.region is null or coalesce(p.region_key = e.match_region, false))
     and (p.monto_min is null or coalesce(e.match_monto >= p.monto_min and e.match_moneda = p.moneda, false))
     and (p.monto_max is null or coalesce(e.match_monto <= p.monto_max and e.match_moneda = p.moneda, false))
     and (p.keywords is null or coalesce(e.match_words like any (p.patterns), false));

-- The first thing in which a preference and an event differ, or null if they match: the same meaning as preference_matches, in words.
create or replace function relevo.preference_mismatch(p relevo.notification_preferences, e relevo.notification_events)
  returns text language sql immutable
  return case when not p.enabled then 'disabled'
              when case when p.topics is null then e.match_topics <> '{}' else not p.topics && e.match_topics end then 'topics'
              when p.rubro_prefix is not null and not coalesce(p.rubro_prefix = any (e.match_prefixes), false) then 'rubro_prefix'
              when p.tipo is not null and not coalesce(relevo.text_key(btrim(p.tipo)) = relevo.text_key(btrim(e.match_tipo)), false) then 'tipo'
              when p.region is not null and not coalesce(p.region_key = e.match_region, false) then 'region'
              when p.monto_min is not null and not coalesce(e.match_monto >= p.monto_min and e.match_moneda = p.moneda, false) then 'monto_min'
              when p.monto_max is not null and not coalesce(e.match_monto <= p.monto_max and e.match_moneda = p.moneda, false) then 'monto_max'
              when p.keywords is not null and not coalesce(e.match_words like any (p.patterns), false) then 'keywords' end;

-- Where the preferences that may match an event are indexed: under its topics if it names some, and else under all else that it tells.
create or replace function relevo.event_buckets(e relevo.notification_events) returns text[]
  language plpgsql immutable
as $$
begin
  if e.match_topics <> '{}' then
    return array(select distinct 'topic:' || t.topic from unnest(e.match_topics) as t(topic));
  end if;
  return array(
    select '*'
    union select 'k:' || w.word from unnest(string_to_array(btrim(coalesce(e.match_words, '')), ' ')) as w(word) where w.word <> ''
    union select 'r:' || r.prefix from unnest(e.match_prefixes) as r(prefix)
    union select 'g:' || e.match_region where e.match_region is not null
    union select 't:' || relevo.text_key(btrim(e.match_tipo)) where e.match_tipo is not null);
end
$$;

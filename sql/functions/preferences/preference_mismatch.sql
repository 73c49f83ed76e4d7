-- Returns the first thing in which a preference and an event differ, or null if they match: the same as preference_matches, in words.
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

revoke all on function relevo.preference_mismatch from public;

-- Returns whether a preference matches an event: the one definition, used by fan-out and again at dispatch; without a subquery, so that it is
-- inlined. A preference without topics matches the events that name none, one with topics the events that name one of them.
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

revoke all on function relevo.preference_matches from public;

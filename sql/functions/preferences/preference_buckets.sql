-- Returns the buckets of a preference, and whether the bucket alone decides; a keyword of several words is under its first.
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

revoke all on function relevo.preference_buckets from public;

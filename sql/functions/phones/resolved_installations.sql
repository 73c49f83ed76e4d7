-- Returns checked installations with what is not said of them: the id (the same token and owner without one is the same installation), and
-- provider, platform and part, which a known one keeps.
create or replace function relevo.resolved_installations(given jsonb) returns jsonb
  language plpgsql stable
  set enable_seqscan = off -- lookups only
as $$
declare
  resolved jsonb;
  place bigint;
begin
  select min(g.ord) into place
    from jsonb_array_elements(given) with ordinality as g(i, ord)
    cross join lateral (select d.provider from relevo.device_installations d where d.installation_id = (g.i ->> 'installation_id')::uuid offset 0) d
   where not g.i ? 'provider' and relevo.native_platform(d.provider) is not null and g.i ->> 'token' ~ E'^Expo(nent)?PushToken\\[';
  if place is not null then
    perform relevo.refuse('provider must be given, too: the token is Expo''s, and the installation had one of another provider');
  end if;
  select jsonb_agg(g.i || jsonb_build_object(
           'installation_id', coalesce(g.i ->> 'installation_id', t.installation_id::text, gen_random_uuid()::text), 'provider', p.provider,
           'platform', w.platform, 'part', relevo.part_of(p.provider, w.platform, p.environment, coalesce(g.i ->> 'token', k.token))) order by g.ord)
    into resolved
    from jsonb_array_elements(given) with ordinality as g(i, ord)
    left join lateral (select d.provider, d.platform, d.part, d.token from relevo.device_installations d
                        where d.installation_id = (g.i ->> 'installation_id')::uuid offset 0) k on true
    cross join lateral (select coalesce(g.i ->> 'provider', k.provider, 'expo') as provider,
                               coalesce(g.i ->> 'environment', case k.provider when 'apns' then k.part end, 'production') as environment) p
    left join lateral (select d.installation_id, d.platform from relevo.device_installations d
                        where g.i ->> 'installation_id' is null and d.token is not null
                          and relevo.token_hash(d.provider, d.part, d.token) = relevo.token_hash(p.provider, p.environment, g.i ->> 'token')
                          and d.owner is not distinct from g.i ->> 'owner' and not d.for_news offset 0) t on true
    cross join lateral (select coalesce(g.i ->> 'platform', case when not g.i ? 'platform' then nullif(coalesce(k.platform, t.platform), 'unknown') end,
                                        relevo.native_platform(p.provider), 'unknown') as platform) w;
  return resolved;
end
$$;

revoke all on function relevo.resolved_installations from public;

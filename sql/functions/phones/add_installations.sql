-- Inserts those of some resolved installations that are not there yet, with a default preference.
create or replace function relevo.add_installations(resolved jsonb) returns void
  language plpgsql
  set enable_seqscan = off -- lookups only
as $$
begin
  -- the preference only the first time: whoever removed it since wants no pushes, however often the app registers
  with made as (
    insert into relevo.device_installations (installation_id, token, provider, project, platform, part, locale, owner, push_capable, permission, opt_outs,
                                             token_confirmed_at, timezone, attributes)
    select (g.i ->> 'installation_id')::uuid, g.i ->> 'token', g.i ->> 'provider', coalesce(g.i ->> 'project', 'default'), g.i ->> 'platform', g.i ->> 'part',
           g.i ->> 'locale', g.i ->> 'owner', coalesce((g.i ->> 'push_capable')::boolean, true), coalesce(g.i ->> 'permission', 'granted'),
           array(select jsonb_array_elements_text(coalesce(nullif(g.i -> 'opt_outs', 'null'), '[]'))), case when g.i ->> 'token' is not null then now() end,
           g.i ->> 'timezone', case when coalesce(g.i -> 'attributes', 'null') <> 'null' then relevo.changed_attributes(null, g.i -> 'attributes') end
      from jsonb_array_elements(resolved) as g(i)
      left join lateral (select true as known from relevo.device_installations d where d.installation_id = (g.i ->> 'installation_id')::uuid offset 0) d on true
     where d.known is null
     order by relevo.token_hash(g.i ->> 'provider', g.i ->> 'part', g.i ->> 'token'), (g.i ->> 'installation_id')::uuid
     -- in the same order as all who write these: no deadlock
    returning installation_id
  )
  insert into relevo.notification_preferences (installation_id, name) select m.installation_id, 'default' from made m on conflict do nothing;
end
$$;

revoke all on function relevo.add_installations from public;

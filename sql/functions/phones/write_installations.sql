-- Writes installations of which none shares its id or token with another, and returns their ids.
-- How it goes: lock tokens and rows in one order, take tokens away from their former installations, update those that are known, insert the
-- others with a default preference.
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

revoke all on function relevo.write_installations from public;

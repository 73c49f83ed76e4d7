-- Writes checked installations of which none shares its id or token with another, and returns their ids.
-- How it goes: lock tokens and rows in one order, take tokens away from their former installations, update those that are known, insert the
-- others with a default preference.
create or replace function relevo.write_installations(given jsonb) returns uuid[]
  language plpgsql
  set enable_seqscan = off
as $$
declare
  of_all jsonb;
  ids uuid[];
  names text[]; -- of the tokens
  hashes bytea[];
  changed int;
begin
  -- phones that claim one token at once take turns here, and then those that swap theirs; a long list would fill the table of locks
  if jsonb_array_length(given) <= 20 then
    perform pg_advisory_xact_lock(hashtextextended('relevo.token:' || t.token, 0))
       from (select distinct g.i ->> 'token' as token from jsonb_array_elements(given) as g(i) where g.i ->> 'token' is not null order by 1) t;
    perform pg_advisory_xact_lock_shared(hashtextextended('relevo.owner:' || o.owner, 0)) -- what is being chosen is found by the trigger
       from (select distinct g.i ->> 'owner' as owner from jsonb_array_elements(given) as g(i) where g.i ->> 'owner' is not null order by 1) o;
  else
    perform pg_advisory_xact_lock(hashtextextended('relevo.owners', 0)); -- in place of a lock for each owner
  end if;
  of_all := relevo.resolved_installations(given);
  select array_agg((g.i ->> 'installation_id')::uuid order by g.ord),
         array_agg(relevo.token_name(g.i ->> 'provider', g.i ->> 'part', g.i ->> 'token') order by g.ord),
         array_agg(relevo.token_hash(g.i ->> 'provider', g.i ->> 'part', g.i ->> 'token') order by g.ord)
    into ids, names, hashes from jsonb_array_elements(of_all) with ordinality as g(i, ord);
  perform from relevo.device_installations i
    where i.installation_id in (select u.id from unnest(ids) as u(id)
                                union select d.installation_id from unnest(hashes) as u(hash)
                                cross join lateral (select d.installation_id from relevo.device_installations d
                                                     where d.token is not null and relevo.token_hash(d.provider, d.part, d.token) = u.hash offset 0) d)
    order by i.installation_id for update;
  of_all := relevo.resolved_installations(( -- once more: what was read before the locks may have changed
    select jsonb_agg(e.i || jsonb_build_object('installation_id', ids[e.ord]) order by e.ord) from jsonb_array_elements(given) with ordinality as e(i, ord)));
  if hashes is distinct from (select array_agg(relevo.token_hash(g.i ->> 'provider', g.i ->> 'part', g.i ->> 'token') order by g.ord)
                                from jsonb_array_elements(of_all) with ordinality as g(i, ord)) then
    raise exception using errcode = 'unique_violation', message = 'the provider of an installation was changed by another meanwhile';
  end if;
  update relevo.device_installations i
     set token = null, token_version = i.token_version + 1, invalidated_at = now(), invalid_reason = 'token_moved', updated_at = now()
    from unnest(ids, hashes) as g(id, hash)
   where i.token is not null and relevo.token_hash(i.provider, i.part, i.token) = g.hash and i.installation_id <> g.id;
  get diagnostics changed = row_count;
  if changed > 0 and coalesce(current_setting('relevo.expects', true), '') like '%free token%' then
    raise exception using errcode = 'lock_not_available', message = 'the token was taken by another installation meanwhile';
  end if;
  update relevo.device_installations i
     set token = case when g.i ? 'token' then g.i ->> 'token' else i.token end,
         token_version = i.token_version + (g.i ? 'token' and relevo.token_name(i.provider, i.part, i.token) is distinct from g.name)::int,
         token_confirmed_at = case when g.name is not null then now() else i.token_confirmed_at end,
         provider = g.i ->> 'provider', platform = g.i ->> 'platform', part = g.i ->> 'part',
         project = case when g.i ? 'project' then coalesce(g.i ->> 'project', 'default') else i.project end,
         locale = case when g.i ? 'locale' then g.i ->> 'locale' else i.locale end,
         timezone = case when g.i ? 'timezone' then g.i ->> 'timezone' else i.timezone end,
         owner = case when g.i ? 'owner' then g.i ->> 'owner' else i.owner end,
         opt_outs = case when g.i ? 'opt_outs' then array(select jsonb_array_elements_text(coalesce(nullif(g.i -> 'opt_outs', 'null'), '[]')))
                         else i.opt_outs end,
         push_capable = coalesce((g.i ->> 'push_capable')::boolean, true), permission = coalesce(g.i ->> 'permission', 'granted'),
         active = true, updated_at = now(),
         invalidated_at = case when g.i ? 'token' then null else i.invalidated_at end,
         invalid_reason = case when g.i ? 'token' then null else i.invalid_reason end
    from (select e.i, ids[e.ord] as id, names[e.ord] as name from jsonb_array_elements(of_all) with ordinality as e(i, ord)) g
   where i.installation_id = g.id;
  get diagnostics changed = row_count;
  if changed > 0 and coalesce(current_setting('relevo.expects', true), '') like '%new installation%' then
    raise exception using errcode = 'lock_not_available', message = 'the installation was registered by another meanwhile';
  end if;
  perform relevo.add_installations(of_all);
  return ids;
end
$$;

revoke all on function relevo.write_installations from public;

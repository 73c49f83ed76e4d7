-- Writes checked installations of which none shares its id or token with another, and returns their ids.
-- Its caller holds the locks of their tokens and owners. Steps: lock inboxes and phones in one order, take tokens away from their former installations, update those that are known, insert the
-- others with a default preference.
create or replace function relevo.write_installations(given jsonb) returns uuid[]
  language plpgsql
  set enable_seqscan = off -- lookups only
as $$
declare
  of_all jsonb;
  ids uuid[];
  hashes bytea[]; -- of the tokens
  expects text := coalesce(current_setting('relevo.expects', true), '');
begin
  of_all := relevo.resolved_installations(given);
  select array_agg((g.i ->> 'installation_id')::uuid order by g.ord) into ids from jsonb_array_elements(of_all) with ordinality as g(i, ord);
  hashes := relevo.token_hashes(of_all);
  perform relevo.lock_inboxes(of_all);
  perform relevo.lock_installations(ids, hashes);
  of_all := relevo.resolved_installations(( -- once more: what was read before the locks may have changed
    select jsonb_agg(e.i || jsonb_build_object('installation_id', ids[e.ord]) order by e.ord) from jsonb_array_elements(given) with ordinality as e(i, ord)));
  if hashes is distinct from relevo.token_hashes(of_all) then
    raise exception using errcode = 'unique_violation', message = 'the provider of an installation was changed by another meanwhile';
  end if;
  if relevo.take_tokens(ids, hashes) > 0 and expects like '%free token%' then
    raise exception using errcode = 'lock_not_available', message = 'the token was taken by another installation meanwhile';
  end if;
  if relevo.update_installations(of_all) > 0 and expects like '%new installation%' then
    raise exception using errcode = 'lock_not_available', message = 'the installation was registered by another meanwhile';
  end if;
  perform relevo.add_installations(of_all);
  return ids;
end
$$;

revoke all on function relevo.write_installations from public;

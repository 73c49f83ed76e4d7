-- Takes tokens away from installations other than those that register them now, and returns how many lost theirs.
create or replace function relevo.take_tokens(ids uuid[], hashes bytea[]) returns int
  language plpgsql volatile
  set enable_seqscan = off -- lookups only
as $$
declare
  lost int;
begin
  update relevo.device_installations i
     set token = null, token_version = i.token_version + 1, invalidated_at = now(), invalid_reason = 'token_moved', updated_at = now()
    from unnest(ids, hashes) as g(id, hash)
   where i.token is not null and relevo.token_hash(i.provider, i.part, i.token) = g.hash and i.installation_id <> g.id;
  get diagnostics lost = row_count;
  return lost;
end
$$;

revoke all on function relevo.take_tokens from public;

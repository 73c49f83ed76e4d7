-- Locks installations and those that have tokens of these hashes, in one order: phones that swap their tokens take turns.
create or replace function relevo.lock_installations(ids uuid[], hashes bytea[]) returns void
  language plpgsql volatile
  set enable_seqscan = off -- lookups only
as $$
begin
  perform from relevo.device_installations i
    where i.installation_id in (select u.id from unnest(ids) as u(id)
                                union select d.installation_id from unnest(hashes) as u(hash)
                                cross join lateral (select d.installation_id from relevo.device_installations d
                                                     where d.token is not null and relevo.token_hash(d.provider, d.part, d.token) = u.hash offset 0) d)
    order by i.installation_id for update;
end
$$;

revoke all on function relevo.lock_installations from public;

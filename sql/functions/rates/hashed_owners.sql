-- Returns hashes of the owners of some installations, each once; of those without owner, of their ids.
create or replace function relevo.hashed_owners(of_installations uuid[]) returns bigint[]
  language sql stable
as $$
  select array_agg(distinct hashtextextended(coalesce(i.owner, u.id::text), 0))
    from unnest(of_installations) as u(id)
    left join lateral (select i.owner from relevo.device_installations i where i.installation_id = u.id offset 0) i on true
$$;

revoke all on function relevo.hashed_owners from public;

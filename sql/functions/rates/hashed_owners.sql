-- Returns hashes of the owners of some installations of a project, each once; of those without owner, of their ids. Where others have an owner, all
-- phones without one whose pushes were never confirmed count as one: strangers may register as many as they like.
create or replace function relevo.hashed_owners(of_installations uuid[], of_project text) returns bigint[]
  language sql stable
as $$
  select array_agg(distinct hashtextextended(coalesce(p.owner, case when p.is_stranger and relevo.has_owners(of_project) then '' else p.id::text end), 0))
    from (select u.id, i.owner, i.owner is null and not relevo.was_taken(u.id, of_project, true) as is_stranger
            from unnest(of_installations) as u(id)
            left join lateral (select i.owner from relevo.device_installations i where i.installation_id = u.id offset 0) i on true
          offset 0) p
$$;

revoke all on function relevo.hashed_owners from public;

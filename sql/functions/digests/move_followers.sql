-- Brings the next phones of a project whose zone changed, which the caller has locked in digest_moves, to the slots of their digests, and returns how many were looked at; after the
-- last one the project is done. Whoever changes the zone once more meanwhile waits, and lets it begin anew.
create or replace function relevo.move_followers(of_project text, most int) returns int
  language plpgsql volatile
as $$
declare
  n record;
begin
  select count(*)::int as looked_at, (array_agg(f.installation_id order by f.installation_id desc))[1] as last,
         array_agg(distinct f.installation_id) filter (where f.is_elsewhere) as moved
    into n
    from (select f.installation_id, f.zone <> relevo.digest_zone(i.i) as is_elsewhere
            from (select f.installation_id, f.zone from relevo.digest_followers f
                   where f.project = of_project and f.installation_id > coalesce((select m.place from relevo.digest_moves m where m.project = of_project),
                                                                                  '00000000-0000-0000-0000-000000000000')
                   order by f.installation_id limit most) f
            left join lateral (select i from relevo.device_installations i where i.installation_id = f.installation_id offset 0) i on true) f;
  if n.moved is not null then
    perform relevo.follow_digests(n.moved);
  end if;
  if n.looked_at < most then
    delete from relevo.digest_moves m where m.project = of_project;
  else
    update relevo.digest_moves m set place = n.last where m.project = of_project;
  end if;
  return n.looked_at;
end
$$;

revoke all on function relevo.move_followers from public;

-- Returns the id of a project's event by its type and key, archived or not, or null. Without a project it is the event that names none, or else
-- the only project's; refuses the question if several projects have one. However many have one, it reads a few.
create or replace function relevo.event_id_in_project(of_type text, of_key text, of_project text) returns bigint
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off -- lookups only
as $$
declare
  keys text[] := array[of_key, relevo.hidden_key(of_type, of_key)];
  found_id bigint;
  ids bigint[];
  projects text[];
begin
  found_id := (select k.event_id from relevo.known_key(of_type, keys[1], keys[2], of_project) k);
  if found_id is not null or of_project is not null then
    return found_id;
  end if;
  select array_agg(f.id order by f.project), array_agg(f.project order by f.project) into ids, projects
    from unnest(keys) as g(key)
    cross join lateral ((select e.id, e.project from relevo.notification_events e
                          where e.event_type = of_type and e.event_key = g.key order by coalesce(e.project, '') limit 5)
                        union all
                        (select k.event_id, k.project from relevo.event_keys k
                          where k.event_type = of_type and k.event_key = g.key order by coalesce(k.project, '') limit 5)) f;
  if cardinality(ids) > 1 then
    perform relevo.refuse(format('project must be given: events of type %s and key %s are there in %s', left(of_type, 100), left(of_key, 100),
      array_to_string(projects[1:5], ', ')));
  end if;
  return ids[1];
end
$$;

revoke all on function relevo.event_id_in_project from public;

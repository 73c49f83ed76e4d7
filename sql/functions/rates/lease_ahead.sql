-- Leases a worker's fair share of a project's connections before anything is due, and returns it with the event types that others compose.
-- No row if somebody else holds the project just now, or others leave no connections. It does not wait for the disk, as a lease need not.
create or replace function relevo.lease_ahead(of_project text, worker text, most int, lease_ms int)
  returns table (connections int, composed text[])
  language plpgsql
  set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan -- lookups only
as $$
#variable_conflict use_column
declare
  workers int;
  share int;
  others_compose text[];
begin
  perform set_config('synchronous_commit', 'off', true);
  perform from relevo.projects p where p.project = of_project for no key update skip locked;
  if not found then
    return;
  end if;
  select count(distinct w.worker_id) filter (where 'dispatch' = any (w.cycles)),
         coalesce(array_agg(distinct c.event_type) filter (where c.event_type is not null and w.worker_id <> worker), '{}')
    into workers, others_compose
    from relevo.workers w
    left join lateral unnest(w.composers) as c(event_type) on true
   where relevo.is_alive(w);
  share := least(greatest(1, most / greatest(1, workers)),
                 most - coalesce((select sum(o.connections)::int from relevo.push_connections o
                                   where o.project = of_project and o.worker_id <> worker and o.leased_until > now()), 0));
  if share < 1 then
    return;
  end if;
  insert into relevo.push_connections as c (project, worker_id, connections, leased_until)
  values (of_project, worker, share, now() + lease_ms * interval '1 millisecond')
  on conflict (project, worker_id) do update set connections = excluded.connections, leased_until = excluded.leased_until;
  return query select share, others_compose;
end
$$;

revoke all on function relevo.lease_ahead from public;

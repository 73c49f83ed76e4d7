-- needs relevo 0.2.0
-- A worker looks for what is due, and at the project it sends for, in one round trip each: what makes a plan go by keys belongs to these
-- functions. It takes tokens without a lock if nothing changed since its look; nobody waits for anybody unless there is something to decide.

-- Finds the projects and lanes that have something due, by skipping along the queue's index, and when the next thing falls due; none once
-- dispatch is paused.
create function relevo.due_lanes_1(given_at timestamptz, most int) returns table (project text, lane text, due_in_s double precision)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
  set random_page_cost = 0 set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  at timestamptz := coalesce(given_at, now());
begin
  if exists (select from relevo.cycle_state s where s.cycle = 'dispatch' and s.source = '' and s.paused_at is not null) then
    return;
  end if;
  return query
    with recursive first as ( -- the first of a lane in the index is also the one that falls due first
      (select q.project, q.lane, q.due_at from relevo.due_chunks q order by q.project, q.lane, q.due_at, q.id limit 1)
      union all
      select n.project, n.lane, n.due_at
        from first f
        cross join lateral (select q.project, q.lane, q.due_at from relevo.due_chunks q
                             where (q.project, q.lane) > (f.project, f.lane)
                             order by q.project, q.lane, q.due_at, q.id limit 1) n
    )
    select f.project, f.lane, extract(epoch from f.due_at - at)::float8
      from first f
     order by f.due_at > at, f.lane desc, f.due_at
     limit most;
end
$$;

revoke all on function relevo.due_lanes_1(timestamptz, int) from public;

-- Tells what a project's lock tells, and which version of its row that is; by keys, whatever the statistics say.
create function relevo.look_at_project_1(of_project text, given_at timestamptz)
  returns table (project text, urgent_tokens double precision, bulk_tokens double precision, filled_at timestamptz, rate_share double precision,
                 rest_until timestamptz, breaker text, breaker_reason text, breaker_by text, breaker_since timestamptz, probe_at timestamptz,
                 trips int, failures int, pruning_stopped_at timestamptz, watched text[], refused boolean, now timestamptz, version text)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
  return query
    select p.project, p.urgent_tokens, p.bulk_tokens, p.filled_at, p.rate_share, p.rest_until, p.breaker, p.breaker_reason, p.breaker_by,
           p.breaker_since, p.probe_at, p.trips, p.failures, p.pruning_stopped_at,
           array(select c.answered_by from relevo.credential_answers c where c.project = p.project),
           exists (select from relevo.refused_events r where r.project = p.project and not r.taken_since),
           coalesce(given_at, clock_timestamp()), p.xmin::text
      from relevo.projects p where p.project = of_project;
end
$$;

revoke all on function relevo.look_at_project_1(text, timestamptz) from public;

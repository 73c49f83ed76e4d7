-- Locks a project's row, so that the fleet decides about it one after the other, and returns what is known of it from then on, and the time; no
-- row if there is none yet. It waits for the lock for `wait_ms` at most, whatever lock_timeout says. By index lookup, whatever the statistics say.
create or replace function relevo.lock_project(of_project text, given_at timestamptz, wait_ms int)
  returns table (project text, urgent_tokens double precision, bulk_tokens double precision, filled_at timestamptz, rate_share double precision,
                 rest_until timestamptz, breaker text, breaker_reason text, breaker_by text, breaker_since timestamptz, probe_at timestamptz,
                 trips int, failures int, pruning_stopped_at timestamptz, watched text[], refused boolean, now timestamptz)
  language plpgsql
  set search_path = pg_catalog, pg_temp set lock_timeout = 0 set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan -- lookups only
as $$
#variable_conflict use_column
begin
  perform set_config('lock_timeout', wait_ms::text, true); -- until the function returns
  perform from relevo.projects p where p.project = of_project for no key update;
  return query
    select p.project, p.urgent_tokens, p.bulk_tokens, p.filled_at, p.rate_share, p.rest_until, p.breaker, p.breaker_reason, p.breaker_by,
           p.breaker_since, p.probe_at, p.trips, p.failures, p.pruning_stopped_at,
           array(select c.answered_by from relevo.credential_answers c where c.project = p.project),
           exists (select from relevo.refused_events r where r.project = p.project and not r.taken_since),
           coalesce(given_at, clock_timestamp())
      from relevo.projects p where p.project = of_project;
end
$$;

revoke all on function relevo.lock_project from public;

-- Reads a project for 0.3.0 ahead of a claim: returns what locking a project returns, and the version of its row; by index lookup, whatever the statistics say.
create or replace function relevo.look_at_project_1(of_project text, given_at timestamptz)
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

revoke all on function relevo.look_at_project_1 from public;

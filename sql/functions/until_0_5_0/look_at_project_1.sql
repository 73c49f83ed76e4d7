-- read_project as 0.3.0 calls it.
create or replace function relevo.look_at_project_1(of_project text, given_at timestamptz) returns table (project text, urgent_tokens double
    precision, bulk_tokens double precision, filled_at timestamptz, rate_share double precision, rest_until timestamptz, breaker text,
    breaker_reason text, breaker_by text, breaker_since timestamptz, probe_at timestamptz, trips int, failures int, pruning_stopped_at
    timestamptz, watched text[], refused boolean, now timestamptz, version text)
  language sql stable
as $$ select * from relevo.read_project($1, $2) $$;

revoke all on function relevo.look_at_project_1 from public;

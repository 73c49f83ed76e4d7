-- lease_ahead as 0.3.0 calls it, with what it reads of the project.
create or replace function relevo.lease_ahead_1(of_project text, worker text, most int, lease_ms int) returns table (connections int,
    composed text[], project text, urgent_tokens double precision, bulk_tokens double precision, filled_at timestamptz, rate_share double
    precision, rest_until timestamptz, breaker text, breaker_reason text, breaker_by text, breaker_since timestamptz, probe_at timestamptz,
    trips int, failures int, pruning_stopped_at timestamptz, watched text[], refused boolean, now timestamptz, version text)
  language sql volatile
as $$ select l.connections, l.composed, p.* from relevo.lease_ahead($1, $2, $3, $4) l, relevo.look_at_project_1($1, null) p $$;

revoke all on function relevo.lease_ahead_1 from public;

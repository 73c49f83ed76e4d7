-- check_deadline as 0.3.0 calls it.
create or replace function relevo.check_deadline_1(until timestamptz, at timestamptz, place bigint) returns timestamptz
  language sql stable
as $$ select relevo.check_deadline($1, $2, $3) $$;

revoke all on function relevo.check_deadline_1 from public;

-- fan_out_events as 0.3.0 calls it.
create or replace function relevo.fan_out_events_1(of_events bigint[], watched boolean, given_at timestamptz) returns table (created int,
    events bigint[], installations uuid[])
  language sql volatile
as $$ select f.created, f.events, f.installations from relevo.fan_out_events($1, $2, $3) f $$;

revoke all on function relevo.fan_out_events_1 from public;

-- fan_out_small as 0.3.0 calls it.
create or replace function relevo.fan_out_small_2(of_lane text, of_project text, due_hour timestamptz, few int, most_events int, most int,
    left_out bigint[], watched boolean, given_at timestamptz) returns table (fanned bigint[], late bigint[], created int, events bigint[],
    installations uuid[], counted uuid[], in_hour float8[], busiest_day int[])
  language sql volatile
as $$ select f.fanned, f.late, f.created, f.events, f.installations, f.counted, f.in_hour, f.busiest_day from relevo.fan_out_small($1, $2, $3, $4, $5, $6, $7, $8, $9, null) f $$;

revoke all on function relevo.fan_out_small_2 from public;

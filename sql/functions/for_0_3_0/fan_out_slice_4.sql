-- fan_out_slice as 0.3.0 calls it.
create or replace function relevo.fan_out_slice_4(of_event relevo.notification_events, most int, watched boolean, looked boolean, step_aside
    boolean, enough int, given_at timestamptz) returns table (is_last boolean, targets int, created int, projects text[], counted uuid[],
    in_hour float8[], busiest_day int[])
  language sql volatile
as $$ select f.is_last, f.targets, f.created, f.projects, f.counted, f.in_hour, f.busiest_day
     from relevo.fan_out_slice($1, $2, $3, $4, $5, $6, $7) f $$;

revoke all on function relevo.fan_out_slice_4 from public;

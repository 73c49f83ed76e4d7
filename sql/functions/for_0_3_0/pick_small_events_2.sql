-- pick_small_events as 0.3.0 calls it.
create or replace function relevo.pick_small_events_2(of_lane text, of_project text, due_hour timestamptz, few int, most int, left_out
    bigint[], at timestamptz) returns table (id bigint, is_late boolean, named int)
  language sql volatile
as $$ select * from relevo.pick_small_events($1, $2, $3, $4, $5, $6, $7, null) $$;

revoke all on function relevo.pick_small_events_2 from public;

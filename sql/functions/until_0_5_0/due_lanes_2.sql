-- due_lanes as 0.3.0 calls it.
create or replace function relevo.due_lanes_2(given_at timestamptz, after_id bigint, most_new int, again_projects text[], again_lanes
    text[], again_since timestamptz[], after_project text, after_lane text, most int) returns table (project text, lane text, due_at
    timestamptz, wait_s double precision, troubled boolean, numbered bigint, oldest_xid bigint, next_xid bigint, walked int, last_project
    text, last_lane text)
  language sql stable
as $$ select * from relevo.due_lanes($1, $2, $3, $4, $5, $6, $7, $8, $9) $$;

revoke all on function relevo.due_lanes_2 from public;

-- fan_out_next as 0.3.0 calls it.
create or replace function relevo.fan_out_next_3(after_project text, given_up bigint[], apart bigint[], aside bigint[], few int, most_events
    int, most int, brake boolean, enough int, at_once boolean, unseen boolean, given_at timestamptz) returns table (id bigint, project text,
    audience text, lane text, event_day date, too_late boolean, named int, due_hour timestamptz, how text, fanned bigint[], late bigint[],
    events bigint[], installations uuid[], is_last boolean, targets int, created int, projects text[], counted uuid[], in_hour float8[],
    busiest_day int[])
  language sql volatile
as $$ select f.id, f.project, f.audience, f.lane, f.event_day, f.too_late, f.named, f.due_hour, f.how, f.fanned, f.late, f.events, f.installations,
          f.is_last, f.targets, f.created, f.projects, f.counted, f.in_hour, f.busiest_day
     from relevo.fan_out_next($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, null, null) f $$;

revoke all on function relevo.fan_out_next_3 from public;

-- count_events as 0.3.0 calls it.
create or replace function relevo.count_events_1(events bigint[], installations uuid[], passed boolean) returns table (counted uuid[],
    in_hour float8[], busiest_day int[])
  language sql volatile
as $$ select * from relevo.count_events($1, $2, $3) $$;

revoke all on function relevo.count_events_1 from public;

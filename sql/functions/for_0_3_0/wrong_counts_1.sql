-- wrong_counts as 0.3.0 calls it.
create or replace function relevo.wrong_counts_1(events bigint[]) returns table (event_id bigint, status text, missing bigint)
  language sql stable
as $$ select * from relevo.wrong_counts($1) $$;

revoke all on function relevo.wrong_counts_1 from public;

-- count_event as 0.3.0 calls it.
create or replace function relevo.count_event_2(of_stream bigint, of_release int, was_held boolean, due_at timestamptz, phones uuid[], out
    most float8)
  language sql volatile
as $$ select * from relevo.count_event($1, $2, $3, $4, $5) $$;

revoke all on function relevo.count_event_2 from public;

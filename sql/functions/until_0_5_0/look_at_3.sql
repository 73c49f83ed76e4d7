-- look_up_phones as 0.3.0 calls it.
create or replace function relevo.look_at_3(chunks relevo.due_chunks[], at timestamptz, lease int) returns table (event_day date, event_id
    bigint, event_type text, at_most_once boolean, attempt_count smallint, lapse_count smallint, deadline_at timestamptz, seconds_left
    float8, created_at timestamptz, ids bigint[], installations uuid[], tokens text[], versions int[], platforms text[], locales text[],
    obstacles text[], lease_ms int, as_of text, places text)
  language sql stable
as $$ select * from relevo.look_up_phones($1, $2, $3) $$;

revoke all on function relevo.look_at_3 from public;

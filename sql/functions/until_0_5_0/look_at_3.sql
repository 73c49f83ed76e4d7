-- look_up_phones as 0.3.0 calls it.
create or replace function relevo.look_at_3(chunks relevo.due_chunks[], at timestamptz, lease int) returns table (event_day date, event_id
    bigint, event_type text, at_most_once boolean, attempt_count smallint, lapse_count smallint, deadline_at timestamptz, seconds_left
    float8, created_at timestamptz, ids bigint[], installations uuid[], tokens text[], versions int[], platforms text[], locales text[],
    obstacles text[], lease_ms int, as_of text, places text)
  language sql stable
as $$
  select l.event_day, l.event_id, l.event_type, l.at_most_once, l.attempt_count, l.lapse_count, l.deadline_at, l.seconds_left, l.created_at,
         l.ids, l.installations, l.tokens, l.versions, l.platforms, l.locales, relevo.obstacles_of_0_3(l.obstacles), l.lease_ms, '', '{}'
    from relevo.look_up_phones($1, $2, $3) l
$$;

revoke all on function relevo.look_at_3 from public;

-- look_up_phones as 0.3.0 calls it.
create or replace function relevo.look_at_3(chunks relevo.due_chunks[], at timestamptz, lease int) returns table (event_day date, event_id
    bigint, event_type text, at_most_once boolean, attempt_count smallint, lapse_count smallint, deadline_at timestamptz, seconds_left
    float8, created_at timestamptz, ids bigint[], installations uuid[], tokens text[], versions int[], platforms text[], locales text[],
    obstacles text[], lease_ms int, as_of text, places text)
  language sql stable
as $$
  select c.event_day, r.event_id, c.event_type, r.at_most_once, c.attempt_count, c.lapse_count, r.deadline_at, r.seconds_to_go, c.created_at,
         r.its_ids, r.its_installations, r.its_tokens, r.its_versions, r.its_platforms, r.its_locales, r.its_obstacles, c.lease_ms, '', '{}'
    from relevo.look_up_phones($1, $2, $3) c
    cross join lateral relevo.rows_of_0_3(c.event_id, c.events, c.once, c.deadlines, c.seconds, c.at_most_once, c.deadline_at, c.seconds_left, c.ids, c.installations,
                                          c.tokens, c.versions, c.platforms, c.locales, c.obstacles) r
$$;

revoke all on function relevo.look_at_3 from public;

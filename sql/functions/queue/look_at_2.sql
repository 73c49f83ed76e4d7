-- Returns where the deliveries of some chunks go and what keeps each from being sent, as look_at_3 does, without what only a claim needs.
create or replace function relevo.look_at_2(chunks relevo.due_chunks[], at timestamptz)
  returns table (event_day date, event_id bigint, event_type text, at_most_once boolean, attempt_count smallint, lapse_count smallint,
                 deadline_at timestamptz, seconds_left float8, created_at timestamptz, ids bigint[], installations uuid[], tokens text[],
                 versions int[], platforms text[], locales text[], obstacles text[])
  language sql stable
as $$
  select l.event_day, l.event_id, l.event_type, l.at_most_once, l.attempt_count, l.lapse_count, l.deadline_at, l.seconds_left,
         l.created_at, l.ids, l.installations, l.tokens, l.versions, l.platforms, l.locales, l.obstacles
    from relevo.look_at_3(chunks, at, null) l
$$;

revoke all on function relevo.look_at_2 from public;

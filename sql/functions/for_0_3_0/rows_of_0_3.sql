-- Returns what 0.3.0 knows of a chunk that was claimed: a row for each of its events.
create or replace function relevo.rows_of_0_3(of_event bigint, events bigint[], once boolean[], deadlines timestamptz[], seconds float8[], only_once boolean,
                                              deadline timestamptz, seconds_left float8, ids bigint[], installations uuid[], tokens text[], versions int[],
                                              platforms text[], locales text[], obstacles text[])
  returns table (event_id bigint, at_most_once boolean, deadline_at timestamptz, seconds_to_go float8, its_ids bigint[], its_installations uuid[], its_tokens text[],
                 its_versions int[], its_platforms text[], its_locales text[], its_obstacles text[])
  language sql immutable
as $$
  select $1, $6, $7, $8, $9, $10, $11, $12, $13, $14, relevo.obstacles_of_0_3($15) where $2 is null
  union all
  select u.event_id, bool_or(u.once), min(u.deadline), min(u.seconds), array_agg(u.id), array_agg(u.phone), array_agg(u.token), array_agg(u.version),
         array_agg(u.platform), array_agg(u.locale), relevo.obstacles_of_0_3(array_agg(u.obstacle))
    from unnest($2, $3, $4, $5, $9, $10, $11, $12, $13, $14, $15) as u(event_id, once, deadline, seconds, id, phone, token, version, platform, locale, obstacle)
   where $2 is not null
   group by u.event_id
$$;

revoke all on function relevo.rows_of_0_3 from public;

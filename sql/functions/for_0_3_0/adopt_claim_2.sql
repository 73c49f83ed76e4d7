-- adopt_claim as 0.3.0 calls it.
create or replace function relevo.adopt_claim_2(claim uuid, at timestamptz) returns table (event_day date, event_id bigint, event_type text,
    at_most_once boolean, attempt_count smallint, lapse_count smallint, deadline_at timestamptz, seconds_left float8, created_at
    timestamptz, ids bigint[], installations uuid[], tokens text[], versions int[], platforms text[], locales text[], obstacles text[],
    lease_ms int)
  language sql stable
as $$
  select c.event_day, c.event_id, c.event_type, c.at_most_once, c.attempt_count, c.lapse_count, c.deadline_at, c.seconds_left, c.created_at,
         c.ids, c.installations, c.tokens, c.versions, c.platforms, c.locales, relevo.obstacles_of_0_3(c.obstacles), c.lease_ms
    from relevo.adopt_claim($1, $2) c
$$;

revoke all on function relevo.adopt_claim_2 from public;

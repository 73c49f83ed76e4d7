-- claim_probe as 0.3.0 calls it, which would send the default language to everybody, and of a digest nothing: it gets no digest, and no event
-- that is told by the texts of its type.
create or replace function relevo.claim_probe_2(claim uuid, worker text, of_cycle text, of_project text, of_lane text, most int, given_at
    timestamptz, shard int, shards int, only_types text[], not_types text[], usual_lease_ms int, look_at int) returns table (event_day date,
    event_id bigint, event_type text, at_most_once boolean, attempt_count smallint, lapse_count smallint, deadline_at timestamptz,
    seconds_left float8, created_at timestamptz, ids bigint[], installations uuid[], tokens text[], versions int[], platforms text[],
    locales text[], obstacles text[], lease_ms int)
  language sql volatile
as $$
  select c.event_day, r.event_id, c.event_type, r.at_most_once, c.attempt_count, c.lapse_count, r.deadline_at, r.seconds_to_go, c.created_at,
         r.its_ids, r.its_installations, r.its_tokens, r.its_versions, r.its_platforms, r.its_locales, r.its_obstacles, c.lease_ms
    from relevo.claim_probe($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, coalesce($11, '{}') || '{relevo.digest}',
           array(select distinct w.event_type from relevo.wordings w), $12, $13, false) c
    cross join lateral relevo.rows_of_0_3(c.event_id, c.events, c.once, c.deadlines, c.seconds, c.at_most_once, c.deadline_at, c.seconds_left, c.ids, c.installations,
                                          c.tokens, c.versions, c.platforms, c.locales, c.obstacles) r
$$;

revoke all on function relevo.claim_probe_2 from public;

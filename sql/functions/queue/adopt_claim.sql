-- Returns what a claim holds, like the claim did, after the answer to its COMMIT was lost.
create or replace function relevo.adopt_claim(claim uuid, at timestamptz)
  returns table (event_day date, event_id bigint, event_type text, at_most_once boolean, attempt_count smallint, lapse_count smallint,
                 deadline_at timestamptz, seconds_left float8, created_at timestamptz, ids bigint[], installations uuid[], tokens text[],
                 versions int[], platforms text[], locales text[], obstacles text[], quiet timestamptz[], lease_ms int, events bigint[],
                 once boolean[], deadlines timestamptz[], seconds float8[])
  language sql stable
as $$
  select l.event_day, l.event_id, l.event_type, l.at_most_once, l.attempt_count, l.lapse_count, l.deadline_at, l.seconds_left, l.created_at,
         l.ids, l.installations, l.tokens, l.versions, l.platforms, l.locales, l.obstacles, l.quiet, l.lease_ms, l.events, l.once, l.deadlines, l.seconds
    from relevo.claims c
    cross join lateral relevo.look_up_phones(
      array(select row(0, d.project, d.lane, c.due_at, d.event_day, d.notification_event_id, d.event_type, d.created_at, d.attempt_count,
                       d.lapse_count, d.last_error_code is not null, array[d.id], array[d.installation_id], array[d.inbox_id], null)::relevo.due_chunks
              from unnest(c.days, c.ids) with ordinality as k(event_day, id, n)
              cross join lateral (select * from relevo.notification_deliveries d
                                   where d.event_day = k.event_day and d.id = k.id and d.status in ('pending', 'retryable') offset 0) d
             order by k.n), relevo.now(at), c.lease_ms) l
   where c.token = claim
$$;

revoke all on function relevo.adopt_claim from public;

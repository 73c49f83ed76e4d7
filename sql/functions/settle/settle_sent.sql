-- Settles requests of which every delivery was sent, and which are what the claim holds next, as the general statement would; returns null,
-- with nothing written, if the claim does not hold them, or was made in shadow. Without receipt_ms there are no receipts: what was taken is ok.
-- It earns 14 % of the row dispatch of `make bench ARGS="--only dispatch"`, run with it and with settle_deliveries in turns.
-- Steps: lock the claim, update deliveries, await receipts, count, note first pushes, close the requests, shorten or end the claim.
create or replace function relevo.settle_sent(claim uuid, of_project text, sent_ids bigint[], unsent int[], tickets text[], of_installations uuid[],
                                     versions int[], of_attempts smallint[], request_ids uuid[], firsts int[], lasts int[], events bigint[],
                                     formers text[], counts int[], receipt_ms int, finish boolean, given_at timestamptz) returns int
  language plpgsql volatile
  set enable_sort = on -- sorting allowed
as $$
declare
  at timestamptz := relevo.now(given_at);
  final text := case when receipt_ms is null then 'ok' else 'sent' end;
  size int := cardinality(sent_ids);
  reach int := size + cardinality(unsent);
  held_days date[];
  held_ids bigint[];
  kept_days date[] := '{}';
  kept_ids bigint[] := '{}';
  is_all boolean;
  written int;
begin
  select c.days[:reach], c.ids[:reach], cardinality(c.ids) = size into held_days, held_ids, is_all
    from relevo.claims c where c.token = claim and not c.in_shadow for no key update;
  if unsent <> '{}' then
    select array_agg(u.event_day order by u.place) filter (where u.place = any (unsent)),
           array_agg(u.id order by u.place) filter (where u.place = any (unsent)),
           array_agg(u.event_day order by u.place) filter (where u.place <> all (unsent)),
           array_agg(u.id order by u.place) filter (where u.place <> all (unsent))
      into kept_days, kept_ids, held_days, held_ids
      from unnest(held_days, held_ids) with ordinality as u(event_day, id, place);
  end if;
  if held_ids is distinct from sent_ids then
    return null;
  end if;
  update relevo.notification_deliveries d
     set status = final, attempt_count = d.attempt_count + 1, lapse_count = 0, last_attempt_at = at,
         completed_at = case final when 'ok' then at end, updated_at = at,
         last_error_code = null, last_error_message = null, provider_ticket_id = a.ticket_id,
         token_version = coalesce(a.token_version, d.token_version)
    from (select * from unnest(held_days, held_ids, tickets, versions) as u(event_day, id, ticket_id, token_version)
           order by u.event_day, u.id) a -- every writer locks deliveries in this order: no deadlock
   where d.event_day = any (array[a.event_day]) and d.id = a.id; -- write by key
  get diagnostics written = row_count;
  if written <> size then
    raise exception using errcode = 'no_data_found', message = format('%s of %s deliveries of claim %s are gone', size - written, size, claim);
  end if;
  insert into relevo.awaited_receipts (project, look_at, sent_at, days, ids, installations, tickets, versions, attempts)
  select of_project, at + receipt_ms * interval '1 millisecond', at, held_days[q.first:q.last], held_ids[q.first:q.last],
         of_installations[q.first:q.last], tickets[q.first:q.last], versions[q.first:q.last], of_attempts[q.first:q.last]
    from unnest(firsts, lasts) as q(first, last) where final = 'sent';
  insert into relevo.event_progress_deltas (event_id, status, deliveries)
  select m.event_id, m.status, sum(m.n)::int
    from unnest(events, formers, counts) as c(event_id, former, n)
    cross join lateral (values (c.event_id, final, c.n), (c.event_id, c.former, -c.n)) as m(event_id, status, n)
   group by m.event_id, m.status
  having sum(m.n) <> 0;
  insert into relevo.push_tallies (project, at, sent, answers, unregistered, failed) values (of_project, at, size, size, 0, 0);
  if 'retryable' = any (formers) then
    insert into relevo.event_repeat_deltas (event_id, repeats)
    select c.event_id, sum(c.n)::int from unnest(events, formers, counts) as c(event_id, former, n) where c.former = 'retryable' group by c.event_id;
  end if;
  perform relevo.note_sent(events, at);
  update relevo.push_requests r set answered_at = at, outcome = 'answered'
   where r.claim_token = claim and r.answered_at is null and r.id = any (request_ids);
  if exists (select from relevo.late_tickets) then
    delete from relevo.late_tickets l using unnest(held_days, held_ids, tickets) as a(event_day, id, ticket_id)
     where l.event_day = a.event_day and l.delivery_id = a.id and l.ticket_id = a.ticket_id;
  end if;
  if is_all and finish then
    delete from relevo.claims c where c.token = claim;
  else
    update relevo.claims c
       set days = kept_days || c.days[reach + 1:], ids = kept_ids || c.ids[reach + 1:], leased_until = relevo.longer_lease(c, at)
     where c.token = claim;
  end if;
  return written;
end
$$;

revoke all on function relevo.settle_sent from public;

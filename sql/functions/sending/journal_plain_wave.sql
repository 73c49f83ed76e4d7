-- Journals the requests of a wave, which is what the claim holds next, if nothing keeps it from being sent; else it writes nothing and says so.
-- Each request is given by the places of its first and last delivery in the wave. It earns 6 % of the row personal_dispatch of
-- `make bench ARGS="--only personal"`, run with it and with journal_wave in turns.
create or replace function relevo.journal_plain_wave(claim uuid, of_project text, wave_ids bigint[], events bigint[], request_ids uuid[], firsts int[], lasts int[],
                                      timeout_ms int, given_at timestamptz) returns boolean language plpgsql volatile
as $$
declare
  at timestamptz := relevo.now(given_at);
  size int := cardinality(wave_ids);
  worker text;
  held_days date[];
  held_ids bigint[];
begin
  select c.worker_id, c.days[:size], c.ids[:size] into worker, held_days, held_ids
    from relevo.claims c
   where c.token = claim and c.leased_until > at + timeout_ms * interval '1 millisecond'
     for key share;
  if held_ids is distinct from wave_ids
     or exists (select from unnest(events) as v(event_id)
                  left join lateral (select e.deadline_at, e.ended_at, true as is_there from relevo.notification_events e
                                      where e.id = v.event_id offset 0) e on true
                 where e.is_there is null or e.ended_at is not null or e.deadline_at <= at)
     or (exists (select from relevo.late_tickets)
         and exists (select from unnest(held_days, held_ids) as k(event_day, id)
                      cross join lateral (select from relevo.late_tickets l
                                           where l.event_day = k.event_day and l.delivery_id = k.id offset 0) l)) then
    return false;
  end if;
  insert into relevo.push_requests (request_day, id, claim_token, worker_id, project, journalled_at, days, ids)
  select (at at time zone 'UTC')::date, q.id, claim, worker, of_project, at, held_days[q.first:q.last], held_ids[q.first:q.last]
    from unnest(request_ids, firsts, lasts) as q(id, first, last);
  return true;
end
$$;

revoke all on function relevo.journal_plain_wave from public;

-- needs relevo 0.2.0
-- Receipts are claimed and, where all say that the push arrived, settled by functions: their plans are kept by a connection's server process,
-- also behind a pooler.

-- Claims sent deliveries of a project whose receipts are due, the longest due first, as many requests' worth as fit, at least one; a row for
-- each request's worth.
create function relevo.claim_awaited_1(
  claim uuid, worker text, of_project text, most int, given_at timestamptz, shard int, shards int, lease_ms int
) returns table (sent_at timestamptz, days date[], ids bigint[], installations uuid[], tickets text[], versions int[], attempts smallint[])
  language plpgsql volatile
as $$
#variable_conflict use_column
begin
  return query
  with oldest as materialized (
    select o.id
      from (select w.id, sum(cardinality(w.ids)) over (order by w.look_at, w.id) as upto,
                   row_number() over (order by w.look_at, w.id) as place
              from (select r.id, r.look_at, r.ids
                      from relevo.awaited_receipts r
                     where r.project = of_project and r.look_at <= coalesce(given_at, now()) and r.claim_token is null
                       and (shards is null or r.id % shards = shard)
                     order by r.look_at, r.id
                     limit most) w) o
     where o.upto <= most or o.place = 1
  ), taken as materialized (
    update relevo.awaited_receipts r
       set claim_token = claim
     where r.id = any (array(select w.id from oldest o cross join lateral (
                               select w.id from relevo.awaited_receipts w where w.id = o.id and w.claim_token is null
                                  for no key update skip locked) w))
    returning r.look_at, r.id, r.sent_at, r.days, r.ids, r.installations, r.tickets, r.versions, r.attempts
  ), written as (
    insert into relevo.claims (token, worker_id, cycle, claimed_at, lease_ms, leased_until, days, ids)
    select claim, worker, 'receipt', coalesce(given_at, now()), claim_awaited_1.lease_ms,
           coalesce(given_at, now()) + claim_awaited_1.lease_ms * interval '1 millisecond', array_agg(u.event_day), array_agg(u.id)
      from taken t cross join unnest(t.days, t.ids) as u(event_day, id)
    having count(*) > 0
  )
  select t.sent_at, t.days, t.ids, t.installations, t.tickets, t.versions, t.attempts from taken t order by t.look_at, t.id;
end
$$;

-- Confirms all that a claim of receipts holds, and ends it; returns how many deliveries that were. Nothing is written once the claim was
-- taken back (0), or while it does not hold just as many as were asked for (null): then each answer has to be looked at.
create function relevo.settle_confirmed_1(claim uuid, asked int, given_at timestamptz) returns int
  language plpgsql volatile
as $$
declare
  confirmed int;
begin
  perform from relevo.claims c where c.token = claim for no key update;
  if not found then
    return 0;
  end if;
  if (select sum(cardinality(r.ids)) from relevo.awaited_receipts r where r.claim_token = claim) is distinct from asked then
    return null;
  end if;
  with done as (
    delete from relevo.awaited_receipts r where r.claim_token = claim returning r.days, r.ids
  ), member as materialized (
    select u.event_day, u.id from done d cross join unnest(d.days, d.ids) as u(event_day, id) order by u.event_day, u.id
  ), written as (
    update relevo.notification_deliveries d
       set status = 'ok', completed_at = coalesce(given_at, now()), updated_at = coalesce(given_at, now()), provider_receipt_id = d.provider_ticket_id
      from member m
     where d.event_day = m.event_day and d.id = m.id and d.status = 'sent'
    returning d.notification_event_id as event_id, d.project
  ), progress as (
    insert into relevo.event_progress_deltas (event_id, status, deliveries)
    select w.event_id, s.status, (s.sign * count(*))::int
      from written w cross join (values ('ok', 1), ('sent', -1)) as s(status, sign)
     group by w.event_id, s.status, s.sign
  ), tallied as (
    insert into relevo.push_tallies (project, at, sent, answers, unregistered, confirmed, failed)
    select w.project, coalesce(given_at, now()), 0, count(*), 0, count(*), 0 from written w group by w.project
  ), ended as (
    delete from relevo.claims c where c.token = claim
  )
  select count(*) into confirmed from written;
  return confirmed;
end
$$;

revoke all on function relevo.claim_awaited_1(uuid, text, text, int, timestamptz, int, int, int) from public;
revoke all on function relevo.settle_confirmed_1(uuid, int, timestamptz) from public;

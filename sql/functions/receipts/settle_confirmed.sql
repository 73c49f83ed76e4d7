-- Confirms all that a claim of receipts holds, ends it, and returns how many deliveries that were. Writes nothing once the claim was taken back
-- (0), or while it does not hold just as many as were asked about (null): then each answer is settled by itself.
-- It earns 36 % of the row receipts of `make bench ARGS="--only receipts"`, run with it and with settle_receipts in turns.
create or replace function relevo.settle_confirmed(claim uuid, asked int, given_at timestamptz) returns int
  language plpgsql volatile
  set enable_seqscan = off set enable_bitmapscan = off -- lookups only
as $$
declare
  held_days date[];
  held_ids bigint[];
  any_late boolean := exists (select from relevo.late_tickets);
  of_day date;
  part int;
  confirmed int := 0;
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
  )
  select array_agg(u.event_day), array_agg(u.id order by u.id) into held_days, held_ids
    from done d cross join unnest(d.days, d.ids) as u(event_day, id);
  for of_day in select distinct d.day from unnest(held_days) as d(day) order by d.day loop
    with written as (
      update relevo.notification_deliveries d
         set status = 'ok', completed_at = relevo.now(given_at), updated_at = relevo.now(given_at), provider_receipt_id = d.provider_ticket_id
       where d.event_day = of_day and d.id = any (held_ids) and d.status = 'sent'
      returning d.id, d.notification_event_id as event_id, d.project, d.provider_ticket_id as ticket_id
    ), progress as (
      insert into relevo.event_progress_deltas (event_id, status, deliveries)
      select w.event_id, s.status, (s.sign * count(*))::int
        from written w cross join (values ('ok', 1), ('sent', -1)) as s(status, sign)
       group by w.event_id, s.status, s.sign
    ), tallied as (
      insert into relevo.push_tallies (project, at, sent, answers, unregistered, confirmed, failed)
      select w.project, relevo.now(given_at), 0, count(*), 0, count(*), 0 from written w group by w.project
    ), told as ( -- a late ticket that a delivery now has is no evidence any more
      delete from relevo.late_tickets l using written w where any_late and l.event_day = of_day and l.delivery_id = w.id and l.ticket_id = w.ticket_id
    )
    select count(*) into part from written;
    confirmed := confirmed + part;
  end loop;
  delete from relevo.claims c where c.token = claim;
  return confirmed;
end
$$;

revoke all on function relevo.settle_confirmed from public;

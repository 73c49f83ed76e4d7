-- Ends a claim, or, of the deliveries that it holds, some: what was never journalled is due again, what was journalled and not answered is
-- ambiguous, but in shadow, where no request is ever sent. Returns how many became what, and how many of them are `ambiguous`. A claim of receipts only lets go of them.
create or replace function relevo.end_claim(claim uuid, only_ids bigint[], lapsed boolean, poison_lapses int, most_attempts int, timeout_ms bigint,
                                            receipt_ms bigint, given_at timestamptz)
  returns table (status text, deliveries int)
  language plpgsql volatile
  set enable_sort = on -- sorting allowed
as $$
declare
  at timestamptz := relevo.now(given_at);
  held relevo.claims;
  ambiguous int;
  written relevo.written_delivery[];
begin
  -- Another settlement of a part of it is waited for; the statements below see the claim as it is then.
  select * into held from relevo.claims c where c.token = claim for update;
  if only_ids is null or held.ids <@ only_ids then
    delete from relevo.claims c where c.token = claim;
  else
    update relevo.claims c set days = r.days, ids = r.ids
      from (select coalesce(array_agg(u.event_day), '{}') as days, coalesce(array_agg(u.id), '{}') as ids
              from unnest(held.days, held.ids) as u(event_day, id) where u.id <> all (only_ids)) r
     where c.token = claim;
  end if;
  if held.token is null or held.cycle = 'receipt' then
    update relevo.awaited_receipts r set claim_token = null where r.claim_token = claim;
    return;
  end if;
  if held.in_shadow then
    update relevo.push_requests r set answered_at = at, outcome = 'held_back' where r.claim_token = claim and r.answered_at is null;
  end if;

  with key as materialized ( -- each with its unanswered request, if it was in one
    select k.event_day, k.id, max(k.journalled_at) as journalled_at, (array_agg(k.request_id) filter (where not k.is_held))[1] as request_id
      from (select u.event_day, u.id, null::timestamptz as journalled_at, null::uuid as request_id, true as is_held
              from unnest(held.days, held.ids) as u(event_day, id) where only_ids is null or u.id = any (only_ids)
            union all
            select u.event_day, u.id, r.journalled_at, r.id, false
              from relevo.push_requests r cross join unnest(r.days, r.ids) as u(event_day, id)
             where r.claim_token = claim and r.answered_at is null) k
     group by k.event_day, k.id
    having bool_or(k.is_held)
     order by k.event_day, k.id -- every writer locks deliveries in this order: no deadlock
  ), verdict as materialized ( -- sent by a late ticket; as before, or poison after too many lapses; or its answer was not seen
    select k.*, d.status as former_status, d.late_ticket, d.lapse_count + (lapsed and k.journalled_at is null)::int as lapses,
           case when d.late_ticket is not null then 'sent'
                when k.journalled_at is null and lapsed and d.lapse_count + 1 >= poison_lapses then 'failed'
                when k.journalled_at is null then d.status
                when d.is_once then 'unknown'
                when d.attempt_count + 1 >= coalesce(
                  (select t.max_attempts from relevo.event_types t where t.event_type = d.event_type), most_attempts) then 'failed'
                else 'retryable' end as final_status
      from key k
      cross join lateral (select d.*, coalesce((select e.at_most_once from relevo.notification_events e where e.id = d.notification_event_id),
                                               d.at_most_once) as is_once,
                                 (select l.ticket_id from relevo.late_tickets l where l.event_day = d.event_day and l.delivery_id = d.id
                                     and l.ticket_id is distinct from d.provider_ticket_id order by l.recorded_at desc limit 1) as late_ticket
                            from relevo.notification_deliveries d
                           where d.event_day = k.event_day and d.id = k.id and d.status in ('pending', 'retryable')
                          offset 0) d
  ), done as (
    update relevo.notification_deliveries d
       set status = v.final_status,
           attempt_count = d.attempt_count + (v.journalled_at is not null)::int,
           lapse_count = v.lapses,
           last_attempt_at = coalesce(v.journalled_at, d.last_attempt_at),
           completed_at = case when v.final_status in ('failed', 'unknown') then at end,
           updated_at = at,
           provider_ticket_id = coalesce(v.late_ticket, d.provider_ticket_id),
           last_error_code = case when v.late_ticket is not null then null
                                  when v.journalled_at is not null then 'answer_not_seen'
                                  when v.final_status = 'failed' then 'poison'
                                  else d.last_error_code end,
           last_error_message = case when v.late_ticket is not null then null
                                     when v.journalled_at is not null then 'A request was started and its answer was not seen.'
                                     when v.final_status = 'failed' then format('Its claim lapsed %s times before a request was started.', v.lapses)
                                     else d.last_error_message end
      from verdict v
     where d.event_day = any (array[v.event_day]) and d.id = v.id -- write by key
    returning d.*, v.former_status, v.journalled_at is not null as is_ambiguous, v.request_id, v.late_ticket is not null as was_sent
  )
  select array_agg(row(w.event_day, w.id, w.notification_event_id, w.project, w.installation_id, w.provider_ticket_id, w.token_version, w.attempt_count,
                       w.former_status, w.status,
                       case when w.status not in ('pending', 'retryable') then null when w.is_ambiguous then at + timeout_ms * interval '1 millisecond'
                            else coalesce(held.due_at, at) end,
                       w.was_sent, w.status <> 'sent' and (w.is_ambiguous or w.status = 'failed'),
                       w.last_error_code, w.last_error_code, w.last_error_message, w.request_id)::relevo.written_delivery),
         count(*) filter (where w.is_ambiguous)
    into written, ambiguous from done w;

  perform relevo.record_outcomes(written, case when lapsed then 'reaper' else 'dispatch' end, receipt_ms, at);
  return query
    select w.status, count(*)::int from unnest(written) w group by w.status
     union all
    select 'ambiguous', ambiguous where written is not null;
end
$$;

revoke all on function relevo.end_claim from public;

-- Keeps tickets that arrived after their claim was lost, for the owner of the delivery's chunk or claim. A delivery without such an owner is closed
-- with its ticket at once, if it was given up because its answer was not seen (unknown, or failed after its last attempt; a redrive locks its dead
-- letter), or if it ended as expired, cancelled or skipped without a ticket. A claim that journalled nothing here, neither an unanswered request
-- nor `of_requests`, comes from before a restored backup: the numbers of its deliveries belong to other deliveries now, so its tickets are dropped.
-- Returns how many deliveries were closed, and how many tickets kept.
create or replace function relevo.keep_late_tickets(claim uuid, of_requests uuid[], of_days date[], of_ids bigint[], tickets text[], versions int[],
                                                    receipt_ms bigint, given_at timestamptz, out closed int, out kept int)
  language plpgsql volatile
  set enable_sort = on -- sorting allowed
as $$
declare
  at timestamptz := relevo.now(given_at);
  lately date[] := array(select (at at time zone 'UTC')::date - n from generate_series(0, 7) n);
  open_days date[];
  written relevo.written_delivery[];
begin
  -- A reaper at work on the claim is waited for. A month on its way to the archive is not written to any more.
  perform from relevo.claims c where c.token = claim for no key update;
  closed := 0;
  kept := 0;
  if not exists (select from relevo.push_requests r where r.claim_token = claim and r.answered_at is null)
     and not exists (select from relevo.push_requests r
                      where r.request_day = any (lately) and r.id = any (of_requests) and r.claim_token = claim) then
    return;
  end if;
  open_days := relevo.hold_open(array(select distinct u.day from unnest(of_days) as u(day)));

  with told as materialized (
    select u.event_day, u.id, u.ticket_id, u.token_version
      from unnest(of_days, of_ids, tickets, versions) as u(event_day, id, ticket_id, token_version)
     where u.ticket_id is not null and u.event_day = any (open_days)
     order by u.event_day, u.id -- every writer locks deliveries in this order, dead letters before them: no deadlock
  ), dead as materialized (
    select l.delivery_id
      from told t
      cross join lateral (select l.delivery_id from relevo.dead_letters l where l.event_day = t.event_day and l.delivery_id = t.id for update) l
  ), late as materialized (
    select t.*, d.former_status, d.former_status = 'unknown' or (d.former_status = 'failed' and d.last_error_code = 'answer_not_seen')
           or (d.former_status in ('expired', 'cancelled', 'skipped') and d.provider_ticket_id is null) as is_closable
      from told t
      left join lateral (select d.status as former_status, d.last_error_code, d.provider_ticket_id
                           from relevo.notification_deliveries d
                          where d.event_day = t.event_day and d.id = t.id
                            for no key update) d on true
     where d.provider_ticket_id is distinct from t.ticket_id and (select count(*) from dead) >= 0
  ), buried as (
    delete from relevo.dead_letters l using late t where t.is_closable and l.event_day = any (array[t.event_day]) and l.delivery_id = t.id
  ), done as (
    update relevo.notification_deliveries d
       set status = 'sent', provider_ticket_id = t.ticket_id, token_version = t.token_version, completed_at = null,
           last_attempt_at = at, updated_at = at, last_error_code = null, last_error_message = null
      from late t
     where d.event_day = any (array[t.event_day]) and d.id = t.id and t.is_closable -- write by key
    returning d.*, t.former_status
  ), evidence as (
    insert into relevo.late_tickets (event_day, delivery_id, ticket_id, claim_token, recorded_at)
    select t.event_day, t.id, t.ticket_id, claim, at from late t where t.is_closable is not true
    on conflict do nothing
    returning delivery_id
  )
  select array_agg(row(w.event_day, w.id, w.notification_event_id, w.project, w.installation_id, w.provider_ticket_id, w.token_version, w.attempt_count,
                       w.former_status, w.status, null, true, false, null, null, null, null)::relevo.written_delivery),
         count(*), (select count(*) from evidence)
    into written, closed, kept from done w;

  perform relevo.record_outcomes(written, 'dispatch', receipt_ms, at);
end
$$;

revoke all on function relevo.keep_late_tickets from public;

-- Returns whether a push service took a delivery, or may have taken it: it has a ticket, or it was in a request whose answer nobody saw, or sees yet.
create or replace function relevo.was_handed_over(d relevo.notification_deliveries) returns boolean
  language sql stable
as $$
select d.status in ('sent', 'ok', 'unconfirmed', 'unknown') or d.provider_ticket_id is not null
  or exists (select from relevo.late_tickets t where t.event_day = d.event_day and t.delivery_id = d.id)
  or exists (select from relevo.claims c
               join relevo.push_requests r on r.claim_token = c.token and r.answered_at is null and d.id = any (r.ids)
              where d.id = any (c.ids))
  or exists (select from relevo.failed_attempts f
              where f.event_day = d.event_day and f.delivery_id = d.id
                and (f.error_code = 'answer_not_seen'
                     or exists (select from relevo.push_requests r
                                 where r.request_day between (f.at at time zone 'UTC')::date - 1 and (f.at at time zone 'UTC')::date
                                   and r.id = f.request_id and r.outcome = 'unclear')))
$$;

revoke all on function relevo.was_handed_over from public;

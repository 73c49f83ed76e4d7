-- needs relevo 0.3.0
-- Notes on a delivery when it was opened, and by which button.

alter table relevo.notification_deliveries
  add column opened_at timestamptz,
  add column opened_action text,
  add constraint notification_deliveries_opened_action_check check (length(opened_action) between 1 and 100) not valid;
comment on column relevo.notification_deliveries.opened_at is 'When it was opened, as its phone reported; only where the event''s type asks for that.';
comment on column relevo.notification_deliveries.opened_action is 'By which of its buttons it was opened; null: by itself.';

create or replace view relevo.deliveries as
select d.event_day, d.id, d.notification_event_id, d.installation_id, d.event_type, d.provider, d.project, d.lane, d.at_most_once, d.status,
       d.attempt_count, d.lapse_count, coalesce(q.due_at, c.due_at) as next_attempt_at,
       e.deadline_at, d.last_attempt_at, d.completed_at, d.created_at, d.updated_at, d.last_error_code, d.last_error_message,
       d.provider_ticket_id, d.provider_receipt_id, coalesce(c.token, r.claim_token) as claim_token,
       coalesce(c.claimed_at, rc.claimed_at) as locked_at, coalesce(c.worker_id, rc.worker_id) as locked_by,
       coalesce(c.leased_until, rc.leased_until) as locked_until, coalesce(c.token, rc.token) is not null as processing,
       d.token_version, r.look_at as next_receipt_at, d.opened_at, d.opened_action
  from relevo.notification_deliveries d
  left join relevo.notification_events e on e.id = d.notification_event_id
  left join lateral (select q.due_at from relevo.due_chunks q
                      where d.status in ('pending', 'retryable') and q.event_id = d.notification_event_id and d.id = any (q.ids) limit 1) q on true
  left join lateral (select c.token, c.claimed_at, c.worker_id, c.leased_until, c.due_at from relevo.claims c
                      where d.status in ('pending', 'retryable') and d.id = any (c.ids) limit 1) c on true
  left join lateral (select r.look_at, r.claim_token from relevo.awaited_receipts r
                      where d.status = 'sent' and r.project = d.project and d.id = any (r.ids) limit 1) r on true
  left join relevo.claims rc on rc.token = r.claim_token;

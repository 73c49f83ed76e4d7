-- name: load_phones
-- Makes installations by the number.
insert into relevo.device_installations (token)
select 'ExponentPushToken[' || lpad(n::text, 20, '0') || ']' from generate_series(1, %(phones)s::int) n;

-- name: load_events
-- Makes events that were fanned out, by the number.
insert into relevo.notification_events (id, event_type, event_key, title, audience, content_hash, state, event_day, fanout_started_at,
                                        fanout_finished_at, fanout_upto)
select n, 'bench', n::text, 'Hello', 'everyone', '', 'fanned', (now() at time zone 'UTC')::date, now(), now(), 0
  from generate_series(%(first)s::int, %(last)s::int) n;

-- name: load_deliveries
-- Makes deliveries of those events to all phones as 0.1 kept them; one in ten of the open ones was tried, at some moment of the last hour.
insert into relevo.notification_deliveries (event_day, notification_event_id, event_type, installation_id, status, attempt_count,
  next_attempt_at, last_attempt_at, completed_at, last_error_code, provider_ticket_id, token_version, next_receipt_at)
select e.event_day, e.id, e.event_type, i.installation_id,
       case when %(status)s = 'pending' and i.seq %% 10 = 0 then 'retryable' else %(status)s end,
       case when %(status)s = 'pending' and i.seq %% 10 > 0 then 0 else 1 end,
       case when %(status)s = 'pending' then now() - case when i.seq %% 10 = 0 then i.seq / 10 %% 3600 else 0 end * interval '1 second' end, now(),
       case when %(status)s = 'ok' then now() end, case when %(status)s = 'pending' and i.seq %% 10 = 0 then 'MessageRateExceeded' end,
       case when %(status)s in ('sent', 'ok') then 'ticket-' || e.id || '-' || i.seq end, 1,
       case when %(status)s = 'sent' then now() + i.seq %% 900 * interval '1 second' end
  from relevo.notification_events e cross join relevo.device_installations i
 where e.id between %(first)s and %(last)s;

-- name: refresh
-- Lets the planner see what was loaded.
vacuum analyze relevo.notification_deliveries;

-- name: count_queued
-- Counts the chunks and what lies in them, and the same of awaited receipts.
select (select count(*) from relevo.due_chunks), (select coalesce(sum(cardinality(ids)), 0)::bigint from relevo.due_chunks),
       (select count(*) from relevo.awaited_receipts), (select coalesce(sum(cardinality(ids)), 0)::bigint from relevo.awaited_receipts);

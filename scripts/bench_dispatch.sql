-- name: load_phones
-- Makes installations by the number.
insert into relevo.device_installations (token, project)
select 'ExponentPushToken[' || lpad(n::text, 20, '0') || ']', 'default' from generate_series(1, %(phones)s::int) n;

-- name: refresh
-- Lets the planner see what was loaded.
analyze relevo.device_installations;

-- name: load_completed
-- Makes deliveries that were sent and confirmed, by the number.
insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, status, attempt_count,
                                            next_attempt_at, completed_at, provider_ticket_id, token_version)
select (now() at time zone 'UTC')::date, %(event)s + n / 100000, lpad(to_hex(n), 32, '0')::uuid, 'past', 'ok', 1, null, now(), 'ticket-' || n, 1
  from generate_series(1, %(count)s::int) n;

-- name: seed_lock
-- The seed's claim: a batch is locked by a mark, oldest first.
with due as (
  select d.event_day, d.id from relevo.notification_deliveries d
   where d.status in ('pending', 'retryable') and d.completed_at is null and d.next_attempt_at <= now() and d.claim_token is null
   order by d.created_at, d.id limit %(limit)s for update skip locked
), locked as (
  update relevo.notification_deliveries d set claim_token = %(token)s, updated_at = now()
    from due where d.event_day = due.event_day and d.id = due.id
  returning d.event_day, d.id, d.installation_id, d.notification_event_id
)
select l.event_day, l.id, i.token, e.title, e.body
  from locked l
  join relevo.device_installations i on i.installation_id = l.installation_id
  join relevo.notification_events e on e.id = l.notification_event_id;

-- name: seed_update
-- The seed's outcome: one update per delivery.
update relevo.notification_deliveries
   set status = 'sent', attempt_count = attempt_count + 1, claim_token = null, next_attempt_at = null, provider_ticket_id = %(ticket)s,
       last_attempt_at = now(), updated_at = now()
 where event_day = %(day)s and id = %(id)s;

-- name: forget_open
-- Ends what a measurement left open.
update relevo.notification_deliveries set status = 'cancelled', completed_at = now(), next_attempt_at = null, claim_token = null
 where status in ('pending', 'retryable');

-- name: queue_bulk
-- Makes open bulk deliveries of one event by the number, as fan-out does: to the phones there are, over and over.
insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, provider, project, lane)
select (now() at time zone 'UTC')::date, %(event)s + r.n, i.installation_id, 'bench', i.provider, i.project, 'bulk'
  from generate_series(1, %(rounds)s) as r(n) cross join relevo.device_installations i;

-- name: queue_events
-- Makes the events of those deliveries.
insert into relevo.notification_events (id, event_type, event_key, title, audience, content_hash, state, event_day, fanout_started_at,
                                        fanout_upto, fanout_finished_at)
select %(event)s + r.n, 'bench', 'bulk-' || (%(event)s + r.n), 'Bulk', 'everyone', '', 'fanned', (now() at time zone 'UTC')::date, now(), 0, now()
  from generate_series(1, %(rounds)s) as r(n);

-- name: count_sent
-- Counts what was sent of the bulk lane, by the tally that settling keeps.
select coalesce(sum(t.sent), 0)::bigint - (select count(*) from relevo.notification_deliveries d
                                            where d.lane = 'urgent' and d.status = 'sent' and d.event_type like 'bench.urgent%%')
  from relevo.push_tallies t;

-- name: urgent_waits
-- Tells how many milliseconds each urgent event waited from its enqueueing until its first push was settled.
select extract(epoch from e.first_sent_at - e.created_at)::float8 * 1000
  from relevo.notification_events e where e.event_type = 'bench.urgent' and e.first_sent_at is not null;

-- name: any_phone
-- Picks one phone.
select i.installation_id from relevo.device_installations i order by i.seq limit 1;

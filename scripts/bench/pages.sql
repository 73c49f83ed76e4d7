-- name: make_partitions
-- Makes the months of half a year.
select relevo.ensure_partitions((now() - interval '5 months')::date, 6);

-- name: fill_projects
-- Makes five projects, one of which has its breaker open, and what happened to them.
with made as (
  insert into relevo.projects (project, filled_at, breaker, breaker_by, breaker_since, breaker_reason, probe_at)
  select 'app-' || n, now(), case n when 4 then 'open' else 'closed' end, case n when 4 then 'request' end, case n when 4 then now() end,
         case n when 4 then 'InvalidCredentials' end, case n when 4 then now() + interval '1 minute' end
    from generate_series(0, 4) n
)
insert into relevo.project_incidents (project, at, what, detail)
select 'app-' || n %% 5, now() - n * interval '1 hour', 'rate_halved', 'it was asked to slow down' from generate_series(1, %(deliveries)s / 1000) n;

-- name: fill_phones
-- Makes phones, two to an owner; one in fifty may not be reached.
insert into relevo.device_installations (installation_id, token, project, owner, platform, permission)
select md5('phone ' || n)::uuid, 'ExponentPushToken[' || n || ']', 'app-' || n / 2 %% 5, 'user-' || n / 2, case n %% 2 when 0 then 'ios' else 'android' end,
       case when n %% 50 = 3 then 'denied' else 'granted' end
  from generate_series(1, %(phones)s::int) n;

-- name: fill_preferences
-- Lets each phone ask for a topic, and every tenth for a word.
insert into relevo.notification_preferences (installation_id, name, topics, keywords)
select md5('phone ' || n)::uuid, 'default', case when n %% 10 > 0 then array['team-' || n / 100] end, case when n %% 10 = 0 then array['word' || n] end
  from generate_series(1, %(phones)s::int) n;

-- name: fill_items
-- Makes tenders of a year.
with made as (
  insert into relevo.licitacion_registry (namespace, external_id, source, announced)
  select 'mp', n || '-1-LE26', 'chilecompra', true from generate_series(1, %(deliveries)s / 5) n
)
insert into relevo.licitaciones (id, namespace, external_id, nombre, organismo, sources, fingerprint, publicada_at)
overriding system value
select n, 'mp', n || '-1-LE26', 'Water for ' || n, 'The council', '{chilecompra}', 'x', now() - n * interval '1 hour'
  from generate_series(1, %(deliveries)s / 5) n;

-- name: fill_events
-- Makes events of four months, the newest last: most are for one phone, one in a twentieth of them for many; some wait, are held or were cancelled.
insert into relevo.notification_events (id, event_type, event_key, title, body, audience, content_hash, state, event_day, fanout_started_at,
                                        fanout_finished_at, fanout_upto, ended_at, swept_at, created_at, scheduled_at, first_sent_at, targets_selected,
                                        deliveries_created, licitacion_id)
overriding system value
select x.n, case when x.broad then 'new_licitacion' else (array['order.shipped', 'order.ready', 'chat.message', 'payment.due'])[x.n %% 4 + 1] end,
       'key-' || x.n, 'Something happened to ' || x.n, 'It may be of interest to you.', case when x.broad then 'everyone' else 'installations' end, '',
       x.state, x.day, case when x.day is not null then x.at end, case when x.state <> 'waiting' and x.day is not null then x.at end,
       case when x.day is not null then 0 end, case when x.state = 'cancelled' then x.at end, case when x.state = 'cancelled' then x.at end, x.at,
       case when x.state = 'waiting' then now() + interval '1 day' else x.at end, case when x.day is not null then x.at end, x.phones, x.phones,
       case when x.broad then x.n * 20 / %(events)s + 1 end
  from (select y.*, case when y.state in ('fanned', 'cancelled') then (y.at at time zone 'UTC')::date end as day,
               case when not y.broad then 1 when y.n = %(events)s then %(phones)s else %(broad)s end as phones
          from (select n, now() - (%(events)s - n) * (interval '120 days' / %(events)s) - interval '1 minute' as at, n %% (%(events)s / 20) = 0 as broad,
                       case when n %% (%(events)s / 20) = 0 then 'fanned' when n %% 1000 = 1 then 'waiting' when n %% 100 = 7 then 'cancelled' else 'fanned' end as state
                  from generate_series(1, %(events)s) n) y) x;

-- name: fill_audiences
-- Says for whom the events for one phone are: a tenth of them for an owner.
with made as (
  insert into relevo.event_owners (event_id, owner)
  select n, 'user-' || n %% %(phones)s / 2 from generate_series(1, %(events)s) n where n %% 10 = 0 and n %% (%(events)s / 20) > 0
)
insert into relevo.event_audience (event_id, installation_id)
select n, md5('phone ' || n %% %(phones)s + 1)::uuid from generate_series(1, %(events)s) n where n %% (%(events)s / 20) > 0;

-- name: fill_deliveries
-- Makes deliveries that are over, in every state, of all but the newest event.
insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, project, status, attempt_count,
                                            last_attempt_at, completed_at, created_at, last_error_code, last_error_message, provider_ticket_id, token_version)
select x.event_day, x.id, md5('phone ' || x.phone)::uuid, x.event_type, 'app-' || x.phone / 2 %% 5, x.status, 1, x.at, x.at + interval '30 seconds', x.at,
       case x.status when 'failed' then (array['MessageTooBig', 'attempts_exhausted', 'InvalidCredentials'])[x.phone %% 3 + 1] when 'invalid' then 'DeviceNotRegistered' end,
       case when x.status in ('failed', 'invalid') then 'what the push service said' end,
       case when x.status in ('ok', 'unconfirmed') then 'ticket ' || x.id || ' ' || x.phone end, 1
  from (select e.id, e.event_day, e.event_type, e.fanout_started_at as at, p.phone,
               case when e.state = 'cancelled' then 'cancelled'
                    else (array['failed', 'failed', 'failed', 'invalid', 'invalid', 'expired', 'skipped', 'unknown', 'unconfirmed'])[hashint8(e.id * 7919 + p.phone) & 127] end as ended
          from relevo.notification_events e
          cross join lateral (select (case when e.audience = 'everyone' then q.n else e.id %% %(phones)s + 1 end)::int as phone
                                from generate_series(1, case when e.audience = 'everyone' then %(broad)s else 1 end) as q(n)) p
         where e.event_day is not null and e.id < %(events)s) y
  cross join lateral (select y.*, coalesce(y.ended, 'ok') as status) x;

-- name: fill_newest
-- Makes the newest event's deliveries: to every phone, some over, most sent, some tried again, some not yet sent.
insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, project, status, attempt_count,
                                            last_attempt_at, completed_at, created_at, last_error_code, last_error_message, provider_ticket_id, token_version)
select e.event_day, e.id, md5('phone ' || n)::uuid, e.event_type, 'app-' || n / 2 %% 5, x.status, case when x.status = 'pending' then 0 else 1 end,
       case when x.status <> 'pending' then e.fanout_started_at end, case when x.status in ('ok', 'failed', 'invalid') then now() end, e.fanout_started_at,
       case x.status when 'failed' then 'MessageTooBig' when 'invalid' then 'DeviceNotRegistered' when 'retryable' then 'MessageRateExceeded' end,
       case when x.status in ('failed', 'invalid', 'retryable') then 'what the push service said' end,
       case when x.status in ('ok', 'sent') then 'ticket ' || n end, 1
  from relevo.notification_events e
  cross join generate_series(1, %(phones)s) n
  cross join lateral (select case when n %% 100 < 20 then 'ok' when n %% 100 < 80 then 'sent' when n %% 100 < 85 then 'retryable'
                                  when n %% 100 < 95 then 'pending' when n %% 100 < 98 then 'failed' else 'invalid' end as status) x
 where e.id = %(events)s;

-- name: fill_progress
-- Counts each event's deliveries, as settling does.
insert into relevo.event_progress (event_id, status, deliveries)
select d.notification_event_id, d.status, count(*) from relevo.notification_deliveries d group by d.notification_event_id, d.status;

-- name: fill_dead_letters
-- Names what failed for good.
insert into relevo.dead_letters (event_day, delivery_id, event_id, project, error_code, died_at)
select d.event_day, d.id, d.notification_event_id, d.project, d.last_error_code, d.completed_at from relevo.notification_deliveries d where d.status = 'failed';

-- name: fill_queue
-- Queues what is open.
insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error, ids, installations)
select d.project, 'bulk', now() + d.attempt_count * interval '10 minutes', d.event_day, d.notification_event_id, d.event_type, d.created_at, d.attempt_count, 0,
       d.attempt_count > 0, array_agg(d.id), array_agg(d.installation_id)
  from (select d.*, (row_number() over (partition by d.project, d.attempt_count) - 1) / 100 as piece
          from relevo.notification_deliveries d where d.status in ('pending', 'retryable')) d
 group by d.project, d.event_day, d.notification_event_id, d.event_type, d.created_at, d.attempt_count, d.piece;

-- name: fill_awaited
-- Awaits the receipts of what was sent.
insert into relevo.awaited_receipts (project, look_at, sent_at, days, ids, installations, tickets, versions, attempts)
select d.project, now() + interval '1 hour', max(d.last_attempt_at), array_agg(d.event_day), array_agg(d.id), array_agg(d.installation_id), array_agg(d.provider_ticket_id),
       array_agg(1), array_agg(d.attempt_count)
  from (select d.*, (row_number() over (partition by d.project) - 1) / 100 as piece from relevo.notification_deliveries d where d.status = 'sent') d
 group by d.project, d.piece;

-- name: fill_requests
-- Journals what was attempted, by the hundred of a day.
insert into relevo.push_requests (request_day, id, claim_token, worker_id, project, journalled_at, answered_at, outcome, days, ids)
select d.event_day, gen_random_uuid(), gen_random_uuid(), 'replica-1', 'app-1', max(d.last_attempt_at), max(d.last_attempt_at) + interval '1 second', 'answered',
       array_agg(d.event_day), array_agg(d.id)
  from (select d.event_day, d.id, d.last_attempt_at, (row_number() over (partition by d.event_day order by d.last_attempt_at, d.id) - 1) / 100 as piece
          from relevo.notification_deliveries d where d.last_attempt_at is not null) d
 group by d.event_day, d.piece;

-- name: fill_runs
-- Makes the runs of ten replicas, spread evenly over a year, of every outcome.
insert into relevo.worker_runs (cycle, source, slot_at, trigger, worker_id, started_at, finished_at, outcome, error_message, reason, counts)
select x.cycle, case x.cycle when 'ingest' then 'chilecompra' else '' end, null, 'schedule', 'replica-' || x.n %% 10, x.at, x.at + interval '2 seconds', x.outcome,
       case when x.outcome in ('failed', 'abandoned') then 'what went wrong' end, case x.outcome when 'skipped' then 'it was paused' end,
       '{"notifications_sent": 700, "push_requests": 7}'
  from (select n, (array['ingest', 'fanout', 'dispatch', 'receipt', 'reaper', 'cleanup', 'archive-export'])[n %% 7 + 1] as cycle,
               now() - (%(runs)s - n) * (interval '365 days' / %(runs)s) - interval '3 seconds' as at,
               case when n %% 200 = 3 then 'failed' when n %% 500 = 9 then 'partial' when n %% 100 = 17 then 'skipped' when n %% 20000 = 11 then 'abandoned' else 'ok' end as outcome
          from generate_series(1, %(runs)s) n) x;

-- name: fill_cycles
-- Says that each cycle has a round behind it.
insert into relevo.cycle_state (cycle, source, rounds, last_round_at, last_ok_at)
select x.cycle, x.source, 1000, now(), now()
  from (values ('ingest', 'chilecompra'), ('fanout', ''), ('dispatch', ''), ('receipt', ''), ('reaper', ''), ('cleanup', ''), ('archive-export', '')) as x(cycle, source);

-- name: fill_workers
-- Makes ten workers that live, and many that stopped within the year.
insert into relevo.workers (worker_id, hostname, pid, version, role, cycles, started_at, last_seen_at, lease_ms, stopped_at)
select case when n < 10 then 'replica-' else 'gone-' end || n, 'host', 1, '0', 'run', array['dispatch'], now() - n * interval '1 hour',
       case when n < 10 then now() + interval '1 day' else now() - n * interval '1 hour' end, 60000, case when n >= 10 then now() - n * interval '1 hour' end
  from generate_series(0, %(deliveries)s / 500) n;

-- name: fill_minutes
-- Counts the pushes of each minute, in five projects.
with made as (
  insert into relevo.push_tallies (project, at, sent, answers, unregistered, confirmed, failed)
  select 'app-' || n %% 5, now() - n * interval '1 second', 100, 100, 1, 90, 3 from generate_series(1, 60) n
)
insert into relevo.push_minutes (project, minute, sent, answers, unregistered, confirmed, failed)
select 'app-' || n %% 5, date_trunc('minute', now()) - n / 5 * interval '1 minute', 100 + n %% 40, 100, 1, 90, 3 from generate_series(5, %(runs)s) n;

-- name: fill_audit
-- Says who did what, within a year.
insert into relevo.audit_log (at, actor, face, action, outcome, finished_at, error_message)
select now() - (%(deliveries)s / 5 - n) * interval '3 minutes', 'operator ' || n %% 9, 'http', (array['pause', 'resume', 'redrive', 'run', 'cancel'])[n %% 5 + 1],
       case when n %% 50 = 0 then 'failed' else 'ok' end, now() - (%(deliveries)s / 5 - n) * interval '3 minutes', case when n %% 50 = 0 then 'what went wrong' end
  from generate_series(1, %(deliveries)s / 5) n;

-- name: fill_sources
-- Makes three sources, and what they offered that could not be used.
with made as (
  insert into relevo.source_state (source, cursor, last_outcome, last_asked_at, last_ok_at)
  select x.source, '{"page": 7}', 'ok', now(), now() from (values ('chilecompra'), ('folder'), ('rss')) as x(source)
)
insert into relevo.ingest_rejects (source, place, external_id, reason)
select (array['chilecompra', 'folder', 'rss'])[n %% 3 + 1], 'line ' || n, 'x-' || n, 'it has no title' from generate_series(1, %(deliveries)s / 20) n;

-- name: fill_archive
-- Says that two years before are in the archive, and keeps the keys of their events.
with made as (
  insert into relevo.archive_exports (entity, month, state, relation, part_rows, parts, rows, bytes, manifest_sha256, sealed_at, retired_at, exported_at,
                                      verified_at, drop_eligible_at, dropped_at)
  select x.entity, (date_trunc('month', now()) - n * interval '1 month')::date, 'dropped', x.entity, 1000, 1, 1000, 100000, repeat('0', 64), now(), now(), now(), now(), now(), now()
    from generate_series(6, 30) n cross join (values ('licitaciones'), ('notification_events'), ('notification_deliveries'), ('push_requests')) as x(entity)
)
insert into relevo.event_keys (event_type, event_key, event_id, content_hash, state, month)
select 'order.shipped', 'old-' || n, 100000000 + n, '', 'fanned', '2024-01-01' from generate_series(1, %(deliveries)s / 5) n;

-- name: fill_numbers
-- Lets new events and tenders have numbers of their own.
select setval('relevo.notification_events_id_seq', %(events)s), setval('relevo.licitaciones_id_seq', %(deliveries)s / 5);

-- name: take_stock
-- Does what autovacuum would do.
vacuum analyze;

-- name: write_out
-- Has the server write now what it would otherwise write while pages are read.
checkpoint;

-- name: count_deliveries
-- Counts what was made.
select count(*) from relevo.notification_deliveries;

-- name: pick_delivery
-- Picks one delivery of an event, in a state.
select d.id, d.installation_id from relevo.notification_deliveries d where d.notification_event_id = %(event)s and d.status = %(status)s order by d.id limit 1;

-- name: pick_run
-- Picks a run of half a year ago.
select r.id from relevo.worker_runs r where r.started_at > now() - interval '180 days' order by r.started_at limit 1;

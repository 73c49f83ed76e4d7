-- name: leave_statistics_alone
-- Keeps autovacuum away from what is measured, so that every round meets the same.
select format('alter table %%s set (autovacuum_enabled = off)', c.oid::regclass)
  from pg_class c where c.relnamespace = 'relevo'::regnamespace and c.relkind = 'r';

-- name: take_stock
-- Does what autovacuum would have done.
vacuum analyze;

-- name: write_out
-- Has the server write now what it would otherwise write while somebody is measured.
checkpoint;

-- name: grow_phones
-- Makes phones up to a number; each was handled in its app within the last minute, before anything was made for it.
insert into relevo.device_installations (installation_id, token, handled_before)
select lpad(to_hex(n), 32, '0')::uuid, 'ExponentPushToken[' || n || ']', now() - interval '30 seconds'
  from generate_series(%(from)s::int, %(to)s::int) n;

-- name: grow_dead_phones
-- Makes phones whose tokens are disabled and that ask for everything, one for ten living ones.
with made as (
  insert into relevo.device_installations (token, project, invalidated_at, invalid_reason)
  select 'ExponentPushToken[dead-' || n || ']', 'dead', now(), 'DeviceNotRegistered'
    from generate_series(%(from)s::int, %(to)s::int) n where n %% 10 = 0
  returning installation_id
)
insert into relevo.notification_preferences (installation_id) select m.installation_id from made m;

-- name: grow_words
-- Has every tenth phone ask for one of 1,000 words.
insert into relevo.notification_preferences (installation_id, keywords)
select lpad(to_hex(n), 32, '0')::uuid, array['word' || n / 10 %% 1000] from generate_series(%(from)s::int, %(to)s::int) n where n %% 10 = 0;

-- name: add_small_project
-- Makes ten phones of a project of their own, which ask for everything.
with made as (
  insert into relevo.device_installations (token, project)
  select 'ExponentPushToken[small-' || n || ']', 'small' from generate_series(1, 10) n
  returning installation_id
)
insert into relevo.notification_preferences (installation_id) select m.installation_id from made m;

-- name: add_waiting_event
-- Makes an event that is to be fanned out.
insert into relevo.notification_events (event_type, event_key, title, audience, content_hash, project, match_words)
values ('waiting', %(key)s, 'Hello', %(audience)s, '', %(project)s, relevo.words(%(text)s::text))
returning id;

-- name: add_event
-- Makes an event that was fanned out today.
insert into relevo.notification_events (event_type, event_key, title, audience, content_hash, state, event_day, fanout_started_at, fanout_finished_at, fanout_upto)
values (%(type)s, %(key)s, 'Hello', 'everyone', '', 'fanned', (now() at time zone 'UTC')::date, now(), now(), 0)
returning id;

-- name: queue_event
-- Makes the deliveries of an event to so many phones, and queues them as fan-out does.
with made as (
  insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, project)
  select (now() at time zone 'UTC')::date, %(event)s, lpad(to_hex(n), 32, '0')::uuid, %(type)s, %(project)s
    from generate_series(%(from)s::int, %(to)s::int) n
  returning id, installation_id, event_day, created_at
)
insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error, ids, installations)
select %(project)s, 'bulk', now() - interval '1 hour', m.event_day, %(event)s, %(type)s, m.created_at, 0, 0, false, array_agg(m.id), array_agg(m.installation_id)
  from (select m.*, (row_number() over () - 1) / 100 as piece from made m) m
 group by m.event_day, m.created_at, m.piece;

-- name: queue_short
-- Puts one delivery of a type with a short lease before all others.
insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error, ids, installations)
select %(project)s, 'bulk', now() - interval '2 hours', (now() at time zone 'UTC')::date, %(event)s, 'short', now(), 0, 0, false, array[0::bigint], array[lpad('1', 32, '0')::uuid];

-- name: queue_beside
-- Queues deliveries one by one while somebody else's transaction is open.
insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error, ids, installations)
select %(project)s, 'bulk', now(), (now() at time zone 'UTC')::date, %(event)s, 'beside', now(), 0, 0, false, array[0::bigint], array[lpad('1', 32, '0')::uuid]
  from generate_series(1, %(many)s::int);

-- name: forget_beside
-- Deletes them.
delete from relevo.due_chunks q where q.event_type = 'beside';

-- name: add_short_type
-- Makes a type with a short lease.
insert into relevo.event_types (event_type, lease_ms) values ('short', 15000);

-- name: add_projects
-- Makes the thousand projects: whoever awaits a receipt has sent, and whoever has sent has a row.
insert into relevo.projects (project, filled_at, urgent_tokens, bulk_tokens) select 'p' || n, now(), 100, 100 from generate_series(0, 999) n;

-- name: grow_chunks
-- Queues deliveries one by one, as events for one phone each do, in a thousand projects.
insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error, ids, installations)
select 'p' || n %% 1000, case n %% 10 when 0 then 'urgent' else 'bulk' end, now() - interval '1 hour' + n * interval '1 millisecond',
       (now() at time zone 'UTC')::date, 1000000000 + n, 'personal', now(), 0, 0, false, array[n::bigint], array[lpad(to_hex(n), 32, '0')::uuid]
  from generate_series(%(from)s::int, %(to)s::int) n;

-- name: grow_awaited
-- Awaits receipts one by one, in a thousand projects.
insert into relevo.awaited_receipts (project, look_at, sent_at, days, ids, installations, tickets, versions, attempts)
select 'p' || n %% 1000, now() + n * interval '1 millisecond', now(), array[(now() at time zone 'UTC')::date], array[n::bigint],
       array[lpad(to_hex(n), 32, '0')::uuid], array['ticket'], array[1], array[1::smallint]
  from generate_series(%(from)s::int, %(to)s::int) n;

-- name: grow_events
-- Makes events of this month that are over, each for one phone.
with made as (
  insert into relevo.notification_events (event_type, event_key, title, audience, content_hash, state, event_day, fanout_started_at, fanout_finished_at, fanout_upto)
  select 'personal', 'personal ' || n, 'Hello', 'installations', '', 'fanned', (now() at time zone 'UTC')::date, now(), now(), 0
    from generate_series(%(from)s::int, %(to)s::int) n
  returning id
)
insert into relevo.event_audience (event_id, installation_id) select m.id, lpad(to_hex(m.id), 32, '0')::uuid from made m;

-- name: grow_items
-- Makes items of this month.
insert into relevo.licitaciones (namespace, external_id, nombre, sources, fingerprint)
select 'growth', n::text, 'An item', array['growth'], n::text from generate_series(%(from)s::int, %(to)s::int) n;

-- name: grow_runs
-- Makes the runs of fifty replicas, spread over a year: slots of singletons and rounds of the rest, one in twenty failed.
insert into relevo.worker_runs (cycle, source, slot_at, trigger, worker_id, started_at, finished_at, outcome, error_message)
select case n %% 2 when 0 then 'cleanup' else 'dispatch' end, '', case n %% 2 when 0 then now() - n * interval '30 seconds' end, 'schedule', 'replica-' || n %% 50,
       now() - n * interval '30 seconds', now() - n * interval '30 seconds' + interval '1 second',
       case n %% 20 when 0 then 'failed' else 'ok' end, case n %% 20 when 0 then 'no reason' end
  from generate_series(%(from)s::int, %(to)s::int) n;

-- name: grow_workers
-- Makes workers that stopped within the last year.
insert into relevo.workers (worker_id, hostname, pid, version, role, cycles, started_at, last_seen_at, lease_ms, stopped_at)
select 'gone-' || n, 'host', 1, '0.2.0', 'run', array['dispatch'], now() - interval '1 day', now(), 60000, now()
  from generate_series(%(from)s::int, %(to)s::int) n;

-- name: add_replicas
-- Makes fifty workers that live.
insert into relevo.workers (worker_id, hostname, pid, version, role, cycles, started_at, last_seen_at, lease_ms)
select 'replica-' || n, 'host', 1, '0.2.0', 'run', array['dispatch'], now(), now() + interval '1 day', 60000 from generate_series(0, 49) n;

-- name: end_event
-- Cancels an event.
update relevo.notification_events set state = 'cancelled', ended_at = now() where id = %(event_id)s;

-- name: grow_requests
-- Writes requests to the journal of today, a hundred of a minute.
insert into relevo.push_requests (request_day, id, claim_token, worker_id, journalled_at, days, ids)
select (now() at time zone 'UTC')::date, gen_random_uuid(), gen_random_uuid(), 'gone', now() - n * interval '600 milliseconds',
       array[(now() at time zone 'UTC')::date], array[n::bigint]
  from generate_series(%(from)s::int, %(to)s::int) n;

-- name: find_minute
-- Returns today and a minute of which the journal has a hundred requests.
select (now() at time zone 'UTC')::date, min(r.journalled_at), min(r.journalled_at) + interval '1 minute' from relevo.push_requests r where r.worker_id = 'gone';

-- name: fan_out_under
-- Makes events that are due.
insert into relevo.notification_events (event_type, event_key, title, audience, content_hash, scheduled_at)
select 'held', 'held ' || %(to)s || ' ' || n, 'Hello', 'installations', '', now() - interval '1 hour' + n * interval '1 millisecond'
  from generate_series(1, %(to)s::int) n;

-- name: note_fanned_under
-- Marks those as fanned out, whose rows a snapshot keeps.
update relevo.notification_events
   set state = 'fanned', event_day = (now() at time zone 'UTC')::date, fanout_started_at = now(), fanout_finished_at = now(), fanout_upto = 0
 where event_type = 'held' and state = 'waiting';

-- name: end_under
-- Cancels them.
update relevo.notification_events set state = 'cancelled', ended_at = now(), updated_at = now() - interval '1 hour' where event_type = 'held' and state = 'fanned';

-- name: sweep_under
-- Marks them as swept.
update relevo.notification_events set swept_at = now() where event_type = 'held' and swept_at is null;

-- name: change_under
-- Writes changes of counts.
insert into relevo.event_progress_deltas (event_id, status, deliveries) select 1, 'sent', 1 from generate_series(1, %(many)s::int);

-- name: fold_under
-- Takes all of them away, as the reaper does, and returns the last one's number.
with gone as (delete from relevo.event_progress_deltas d returning d.id) select max(g.id) from gone g;

-- name: claim_under
-- Makes claims that are held.
insert into relevo.claims (token, worker_id, cycle, claimed_at, lease_ms, leased_until, days, ids)
select gen_random_uuid(), 'gone', 'held', now() - interval '1 hour', 60000, now() + interval '1 hour', array[(now() at time zone 'UTC')::date], array[n::bigint]
  from generate_series(1, %(to)s::int) n;

-- name: settle_under
-- Ends them.
delete from relevo.claims c where c.cycle = 'held';

-- name: queue_collapsing
-- Makes events of one collapse key for one phone, each with its delivery and its chunk.
with made as (
  insert into relevo.notification_events (event_type, event_key, title, audience, content_hash, state, event_day, fanout_started_at, fanout_finished_at, fanout_upto, collapse)
  select 'collapsing', 'c' || %(to)s || ' ' || n, 'Hello', 'installations', '', 'fanned', (now() at time zone 'UTC')::date, now(), now(), 0, 'match'
    from generate_series(1, %(many)s::int) n
  returning id
), given as (
  insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, project)
  select (now() at time zone 'UTC')::date, m.id, lpad('1', 32, '0')::uuid, 'collapsing', 'collapsing' from made m
  returning id, event_day, notification_event_id, installation_id
)
insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error, ids, installations)
select 'collapsing', 'bulk', now(), g.event_day, g.notification_event_id, 'collapsing', now(), 0, 0, false, array[g.id], array[g.installation_id] from given g;

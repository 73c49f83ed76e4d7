-- name: make_partitions
-- Makes the months that items are kept for.
select relevo.ensure_partitions((now() - interval '90 days')::date, 5);

-- name: fill_phones
-- Makes phones, one to an owner, but for the second one, which belongs to the first one's owner.
insert into relevo.device_installations (installation_id, token, owner)
select md5('phone ' || n)::uuid, 'ExponentPushToken[' || n || ']', 'user-' || greatest(n, 2) from generate_series(1, %(phones)s::int) n;

-- name: fill_events
-- Makes events of the last 89 days.
insert into relevo.notification_events (id, event_type, event_key, title, body, data, audience, category, content_hash, state, event_day, fanout_started_at,
                                        fanout_finished_at, fanout_upto, created_at, scheduled_at, first_sent_at)
overriding system value
select x.n, 'order.shipped', 'key-' || x.n, 'Something happened to ' || x.n, 'It may be of interest to you.', '{"screen": "order"}', 'everyone', 'orders', '',
       'fanned', (x.at at time zone 'UTC')::date, x.at, x.at, 0, x.at, x.at, x.at
  from (select n, now() - (%(events)s - n) * (interval '89 days' / %(events)s) - interval '1 minute' as at from generate_series(1, %(events)s::int) n) x;

-- name: fill_deliveries
-- Makes deliveries of some events: to the first owner's phone, to the second one of every other event, and to others in turn.
insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, status, attempt_count, last_attempt_at, completed_at,
                                            created_at, provider_ticket_id, token_version)
select e.event_day, e.id, md5('phone ' || p.phone)::uuid, e.event_type, 'ok', 1, e.created_at, e.created_at, e.created_at, 'ticket ' || e.id || ' ' || p.phone, 1
  from relevo.notification_events e
  cross join lateral (select 1 as phone union all select 2 where e.id %% 2 = 0
                      union all select (3 + (e.id * %(each)s + q.n) %% (%(phones)s - 2))::int from generate_series(1, %(each)s - 2) as q(n)) p
 where e.id between %(from)s and %(to)s
 order by e.id;

-- name: take_stock
-- Tells the planner what is there.
vacuum analyze;

-- name: write_out
-- Writes out what was filled, so that it is not done while something is measured.
checkpoint;

-- name: count_deliveries
-- Counts the deliveries.
select count(*) from relevo.notification_deliveries;

-- name: mark_some
-- Marks every third of the first owner's newest 300 items as read, and every tenth as archived.
select count(*) filter (where relevo.mark_inbox('{"owner": "user-2"}', e.id, case when e.id %% 10 = 0 then 'archive' else 'read' end))
  from relevo.notification_events e where e.id > %(events)s - 300 and (e.id %% 3 = 0 or e.id %% 10 = 0);

-- name: read_page
-- Reads the first page of the first owner's inbox.
select relevo.inbox('{"owner": "user-2"}');

-- name: read_unread
-- Reads the first page of what is unread.
select relevo.inbox('{"owner": "user-2", "status": "unread"}');

-- name: count_items
-- Counts what is unread and unseen there.
select relevo.inbox_counts('{"owner": "user-2"}');

-- name: read_all_before
-- Marks all but the newest twenty items or so as read.
select relevo.mark_inbox_before('{"owner": "user-2"}', now() - interval '89 days' / %(events)s * 20, 'read');

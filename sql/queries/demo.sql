-- name: make_past_month
-- Makes the partitions of the month half a year ago, for the demo, and returns which it is; nothing once that month is being archived.
select p.month, relevo.ensure_partitions(p.month, 1)
  from (select date_trunc('month', now() at time zone 'UTC' - interval '6 months')::date as month) p
 where not exists (select from relevo.archive_exports x where x.month = p.month)
   and not exists (select from relevo.notification_events e where e.event_type = 'order.shipped' and e.event_key = 'order-101');

-- name: fill_past_month
-- Writes an order of that month and its confirmed deliveries, as they would have stayed.
with told as (
  insert into relevo.notification_events (event_type, event_key, title, body, audience, content_hash, state, event_day, fanout_started_at,
                                          fanout_finished_at, fanout_upto, scheduled_at, created_at, updated_at, first_sent_at,
                                          targets_selected, deliveries_created)
  select 'order.shipped', 'order-' || 100 + n, 'On its way', format('Order %%s has left our house', 100 + n), 'installations', 'demo',
         'fanned', d.day, d.at, d.at, 0, d.at, d.at, d.at, d.at, 1, 1
    from generate_series(1, 40) n,
         lateral (select %(month)s::date + n %% 28 as day, (%(month)s::date + n %% 28)::timestamptz + n * interval '17 minutes' as at) d
  returning id, event_day, created_at)
insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, status, attempt_count,
                                            last_attempt_at, completed_at, created_at, updated_at, provider_ticket_id, token_version)
select t.event_day, t.id, gen_random_uuid(), 'order.shipped', 'ok', 1, t.created_at, t.created_at + interval '16 minutes', t.created_at,
       t.created_at + interval '16 minutes', gen_random_uuid()::text, 1
  from told t;

-- name: ask_for_taps
-- Has phones report taps on the shop's orders, unless somebody decided otherwise.
insert into relevo.event_types (event_type, opens) values ('order.shipped', true) on conflict do nothing;

-- name: find_tokens
-- Finds the push tokens of the shop's phones.
select i.installation_id, i.token from relevo.device_installations i where i.installation_id = any (%(ids)s) and i.active and i.token is not null;

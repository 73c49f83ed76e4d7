-- name: queue_events
-- Makes the events of those deliveries.
insert into relevo.notification_events (id, event_type, event_key, title, audience, content_hash, state, event_day, fanout_started_at,
                                        fanout_upto, fanout_finished_at)
select %(event)s + r.n, 'bench', 'bulk-' || (%(event)s + r.n), 'Bulk', 'everyone', '', 'fanned', (now() at time zone 'UTC')::date, now(), 0, now()
  from generate_series(1, %(rounds)s) as r(n);

-- name: queue_bulk
-- Makes open bulk deliveries of one event by the number, as fan-out does: to the phones there are, over and over.
with made as (
  insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, provider, project, lane)
  select (now() at time zone 'UTC')::date, %(event)s + r.n, i.installation_id, 'bench', i.provider, i.project, 'bulk'
    from generate_series(1, %(rounds)s) as r(n) cross join relevo.device_installations i
  returning *
)
insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                               ids, installations)
select m.project, m.lane, now(), m.event_day, m.notification_event_id, m.event_type, m.created_at, 0, 0, false, array_agg(m.id),
       array_agg(m.installation_id)
  from (select m.*, (row_number() over (partition by m.notification_event_id, m.project) - 1) / 100 as piece from made m) m
 group by m.project, m.lane, m.event_day, m.notification_event_id, m.event_type, m.created_at, m.piece;

-- name: count_sent
-- Counts what was sent of the bulk lane, by the tally that settling keeps.
select coalesce(sum(t.sent), 0)::bigint - (select count(*) from relevo.notification_deliveries d
                                            where d.lane = 'urgent' and d.status = 'sent' and d.event_type like 'bench.urgent%%')
  from relevo.push_tallies t;

-- name: urgent_waits
-- Tells how many milliseconds each urgent event waited from its enqueueing until its first push was settled.
select extract(epoch from e.first_sent_at - e.created_at)::float8 * 1000
  from relevo.notification_events e where e.event_type = 'bench.urgent' and e.first_sent_at is not null;

-- name: spread_type
-- Says over how long events of a type are spread after quiet hours.
insert into relevo.event_types (event_type, quiet_spread_s) values (%(type)s, %(spread_s)s)
on conflict (event_type) do update set quiet_spread_s = excluded.quiet_spread_s;

-- name: end_the_night
-- Moves all that waits, so that the first of it is due in a moment.
update relevo.due_chunks q
   set due_at = q.due_at - (select min(f.due_at) from relevo.due_chunks f where f.event_type = %(type)s) + now() + %(in_s)s * interval '1 second'
 where q.event_type = %(type)s;

-- name: list_due
-- Tells when each delivery is due, in seconds.
select extract(epoch from q.due_at)::float8 from relevo.due_chunks q cross join unnest(q.ids) where q.event_type = %(type)s;

-- name: list_sent
-- Tells when each delivery was sent, in seconds.
select extract(epoch from d.last_attempt_at)::float8 from relevo.notification_deliveries d where d.event_type = %(type)s and d.last_attempt_at is not null;

-- name: count_waiting
-- Counts the deliveries that wait.
select coalesce(sum(cardinality(q.ids)), 0)::bigint from relevo.due_chunks q where q.event_type = %(type)s;

-- name: urgent_waits
-- Tells how many milliseconds each urgent event waited from its enqueueing until its first push was settled.
select extract(epoch from e.first_sent_at - e.created_at)::float8 * 1000
  from relevo.notification_events e where e.event_type = 'bench.urgent' and e.event_key like 'morning%%' and e.first_sent_at is not null;

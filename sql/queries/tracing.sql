-- Statements for spans; a process that exports none sends none of them.

-- name: read_traceparents
-- Reads the traces of some events: up to so many of those that have one.
select k.event_id, e.traceparent
  from unnest(%(events)s::bigint[]) as k(event_id)
  cross join lateral (select n.traceparent from relevo.notification_events n where n.id = k.event_id offset 0) e
 where e.traceparent is not null
 limit %(most)s;

-- name: read_traceparents_of_deliveries
-- Reads the traces of the events of some deliveries, each with its event.
select k.id, d.notification_event_id, e.event_type, e.traceparent
  from unnest(%(days)s::date[], %(ids)s::bigint[]) as k(event_day, id)
  cross join lateral (select d.notification_event_id from relevo.notification_deliveries d
                       where d.event_day = k.event_day and d.id = k.id offset 0) d
  cross join lateral (select n.event_type, n.traceparent from relevo.notification_events n where n.id = d.notification_event_id offset 0) e
 where e.traceparent is not null;

-- name: read_former_attempts
-- Reads the last failed attempt of some deliveries: its number, who found it, and its request, if that is known.
select k.id, f.attempt, f.found_by, f.request_id
  from unnest(%(days)s::date[], %(ids)s::bigint[]) as k(event_day, id)
  cross join lateral (select f.attempt, f.found_by, f.request_id from relevo.failed_attempts f
                       where f.event_day = k.event_day and f.delivery_id = k.id order by f.n desc limit 1) f;

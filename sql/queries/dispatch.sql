-- name: read_contents
-- Reads what some events say.
select e.id, e.title, e.body, e.data, e.push from relevo.notification_events e where e.id = any (%(events)s::bigint[]);

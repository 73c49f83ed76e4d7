-- name: read_contents
-- Reads what some events say; their JSON as text, so that one that cannot be read is no other's trouble.
select e.id, e.title, e.body, e.data::text, e.push::text from relevo.notification_events e where e.id = any (%(events)s::bigint[]);

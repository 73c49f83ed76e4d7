-- name: read_contents
-- Reads what some events say; their JSON as text, so that one that cannot be read is no other's trouble.
select e.id, e.title, e.body, e.data::text, (case when e.collapse is null and e.opens is null and e.unread_badge is null then e.push
             else relevo.push_with_options(e.push, e.event_type, e.collapse, e.opens, e.unread_badge) end)::text,
       e.wording, e.texts::text, e.arguments::text
  from relevo.notification_events e where e.id = any (%(events)s::bigint[]);

-- name: retell_batches
-- Reads what is left of the batches that some events tell, and what they say then, where something of them ended or was handled since they closed.
select r.event_id, r.total, r.event_type, r.words_of, r.title, r.body, r.data::text, r.push::text, r.wording, r.texts::text, r.arguments::text
  from relevo.retold_batches(%(events)s::bigint[], %(now)s) r;

-- name: count_unread
-- Counts what is unread in the inboxes of some phones, for the badges of their pushes.
select b.installation_id, b.unread from relevo.unread_badges(%(installations)s::uuid[]) b;

-- name: read_names
-- Reads what news leave to the moment they are sent, as long as it is there: the keys of their events and the owners of their phones.
select n.event_id, e.event_key, n.installation_id, i.owner
  from unnest(%(events)s::bigint[], %(installations)s::uuid[]) as n(event_id, installation_id)
  left join lateral (select e.event_key from relevo.notification_events e where e.id = n.event_id offset 0) e on true
  left join lateral (select i.owner from relevo.device_installations i where i.installation_id = n.installation_id offset 0) i on true;

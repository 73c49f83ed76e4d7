-- name: look_at_events
-- Reads some events, and how far their deliveries are.
select u.id, relevo.get_event(u.id) from unnest(%(ids)s::bigint[]) as u(id);

-- name: find_installation
-- Finds an installation; for a caller of one project, only if it is that project's.
select i.installation_id from relevo.device_installations i
 where i.installation_id = %(installation_id)s and (%(project)s::text is null or i.project = %(project)s);

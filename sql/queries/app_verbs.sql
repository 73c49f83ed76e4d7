-- name: look_at_events
-- Reads some events, and how far their deliveries are.
select u.id, relevo.get_event(u.id) from unnest(%(ids)s::bigint[]) as u(id);

-- name: look_at_event
-- Reads one event, and how far its deliveries are; for a caller of one project, only if it is that project's.
<<<<<<< HEAD
select g.event from (select relevo.get_event(%(id)s::bigint) as event) g where %(project)s::text is null or g.event ->> 'project' = %(project)s;
=======
select relevo.get_event(%(id)s::bigint)
 where %(project)s::text is null or exists (select from relevo.notification_events e where e.id = %(id)s and e.project = %(project)s);

-- name: own_events
-- Gives events that were just made to a project: its phones alone get them, its callers alone see them.
update relevo.notification_events e set project = %(project)s where e.id = any (%(ids)s::bigint[]);

-- name: list_others_phones
-- Names those of some installations that are of other projects.
select i.installation_id from relevo.device_installations i where i.installation_id = any (%(ids)s::uuid[]) and i.project <> %(project)s;

-- name: find_foreign
-- Finds among events that were there before one that is not this project's.
select u.id
  from unnest(%(ids)s::bigint[]) as u(id)
 where not exists (select from relevo.notification_events e where e.id = u.id and e.project = %(project)s)
 limit 1;

-- name: look_at_event_by_key
-- Reads one event by its type and key; for a caller of one project, only if it is that project's.
select relevo.get_event(k.id)
  from (select relevo.event_id(%(type)s::text, %(key)s::text) as id) k
 where %(project)s::text is null or exists (select from relevo.notification_events e where e.id = k.id and e.project = %(project)s);

-- name: lock_subscription
-- Has those who make or change a subscription of one name take turns.
select relevo.take_turn('news:' || %(name)s::text);
>>>>>>> 9d93fd2b (Replace advisory locks with locks that only Relevo's roles can take)

-- name: find_subscription
-- Returns the first of some names that a subscription to news has; for a caller of one project, of that project's.
select s.name from relevo.news_subscriptions s
 where s.name = any (%(names)s::text[]) and (%(project)s::text is null or s.project = %(project)s)
 order by array_position(%(names)s::text[], s.name) limit 1;

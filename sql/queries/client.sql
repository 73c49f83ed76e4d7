-- name: enqueue_event
-- Enqueues one event in the caller's transaction.
select e.event_id, e.created, e.same_content, e.unknown_installations from relevo.enqueue(%(event)s::jsonb) e;

-- name: enqueue_many
-- Enqueues many events in the caller's transaction, in order, with one notification.
select e.event_id, e.created, e.same_content, e.unknown_installations from relevo.enqueue_many(%(events)s::jsonb) e;

-- name: enqueue_together
-- Enqueues events of several callers in a transaction of their own, which waits for no lock longer than a bound in milliseconds.
select e.event_id, e.created, e.same_content, e.unknown_installations
  from (select set_config('lock_timeout', %(lock_ms)s::int::text, true) as lock_timeout) bound
 cross join lateral relevo.enqueue_many(case when bound.lock_timeout is not null then %(events)s::jsonb end) e; -- so that it is bounded first

-- name: cancel_event
-- Ends an event: nothing of it is sent any more.
select relevo.cancel(coalesce(%(event_id)s::bigint, relevo.event_id_in_project(%(event_type)s::text, %(event_key)s::text, %(project)s::text)), %(reason)s::text);

-- name: complete_event
-- Notes that an event was handled elsewhere: what is left of it ends unsent.
select relevo.complete(coalesce(%(event_id)s::bigint, relevo.event_id_in_project(%(event_type)s::text, %(event_key)s::text, %(project)s::text)), %(reason)s::text);

-- name: complete_installation
-- Notes that everything for an installation until now was handled elsewhere.
select relevo.complete_installation(%(installation_id)s::uuid, %(reason)s::text);

-- name: complete_owner
-- Notes that everything for an owner until now was handled on one phone.
select relevo.complete_owner(%(owner)s::text, reason => %(reason)s::text);

-- name: complete_event_of_owner
-- Notes that an event was handled by an owner on one phone; nothing if there is no such event.
select coalesce((select relevo.complete_owner(%(owner)s::text, e.id, %(reason)s::text)
                   from (select coalesce(%(event_id)s::bigint, relevo.event_id_in_project(%(event_type)s::text, %(event_key)s::text, %(project)s::text)) as id) e
                  where e.id is not null), false);

-- name: delete_events
-- Deletes events with their deliveries.
select relevo.delete_events(%(event_ids)s::bigint[]);

-- name: get_event
-- Reads one event and how far its deliveries are.
select relevo.get_event(coalesce(%(event_id)s::bigint, relevo.event_id_in_project(%(event_type)s::text, %(event_key)s::text, %(project)s::text)));

-- name: register_installation
-- Registers an installation, taking its token over from whoever had it.
select relevo.register_installation(%(installation)s::jsonb);

-- name: set_preference
-- Sets or removes one named preference of an installation.
select relevo.set_preference(%(installation_id)s::uuid, %(name)s::text, %(preference)s::jsonb);

-- name: subscribe_news
-- Subscribes to news, or changes what a subscription asks for.
select relevo.subscribe_news(%(subscription)s::jsonb);

-- name: read_news
-- Reads the next news of a subscription.
select n.news_position, n.at, n.kind, n.project, n.event_id, n.event_key, n.delivery_id, n.installation_id, n.owner, n.data
  from relevo.read_news(%(subscription)s::text, %(after)s::bigint, %(limit)s::int) n;

-- name: acknowledge_news
-- Notes up to which number a subscription's news were dealt with.
select relevo.acknowledge_news(%(subscription)s::text, %(position)s::bigint);

-- name: list_installations
-- Lists the installations of an owner.
select relevo.list_installations(%(owner)s::text, %(limit)s::int);

-- name: list_installations_in_project
-- Lists the installations that an owner has in one project.
select relevo.list_installations_in_project(%(owner)s::text, %(project)s::text, %(limit)s::int);

-- name: unregister_installation
-- Unregisters an installation.
select relevo.unregister_installation(%(installation_id)s::uuid)::int;

-- name: unregister_owner
-- Unregisters every installation of an owner.
select relevo.unregister_owner(%(owner)s::text);

-- name: forget_installation
-- Forgets an installation and what was said to it alone.
select relevo.forget_installation(%(installation_id)s::uuid)::int;

-- name: forget_owner
-- Forgets an owner with all installations, and what was said to them alone.
select relevo.forget_owner(%(owner)s::text);

-- name: change_event
-- Changes an event that has not started yet.
select relevo.change(%(event)s::jsonb);

-- name: preview_event
-- Returns whom an event would reach.
select relevo.preview(%(event)s::jsonb, %(sample)s::int);

-- name: explain_event
-- Returns why an installation gets an event, or not.
select relevo.explain_event(coalesce(%(event_id)s::bigint, relevo.event_id_in_project(%(event_type)s::text, %(event_key)s::text, %(project)s::text)), %(installation_id)s::uuid);

-- name: explain_new_event
-- Returns why an installation would get an event that was not enqueued, or not.
select relevo.explain(%(event)s::jsonb, %(installation_id)s::uuid);

-- name: register_many
-- Registers many installations, and names them in order.
select r.id from unnest(relevo.register_many(%(installations)s::jsonb)) with ordinality as r(id, place) order by r.place;

-- name: unregister_owner_in_project
-- Unregisters every installation that an owner has in one project.
select count(*) filter (where relevo.unregister_installation(i.installation_id))::int
  from (select i.installation_id from relevo.device_installations i
         where i.owner = %(owner)s::text and i.project = %(project)s::text order by i.installation_id for no key update) i;

-- name: complete_owner_in_project
-- Notes that everything for an owner's phones of one project until now was handled on one of them.
select count(*) filter (where relevo.complete_installation(i.installation_id, %(reason)s::text)) > 0
  from (select i.installation_id from relevo.device_installations i
         where i.owner = %(owner)s::text and i.project = %(project)s::text order by i.installation_id for no key update) i;

-- name: forget_owner_in_project
-- Forgets an owner as far as one project goes: the installations there, and what was said to them alone.
select relevo.forget_owner_in_project(%(owner)s::text, %(project)s::text);

-- name: read_inbox
-- Reads a page of an inbox.
select relevo.inbox(%(asked)s::jsonb);

-- name: count_inbox
-- Counts what is unread and unseen in an inbox.
select relevo.inbox_counts(%(asked)s::jsonb);

-- name: mark_inbox
-- Marks one item of an inbox, or takes a mark back.
select relevo.mark_inbox(%(asked)s::jsonb, %(event_id)s::bigint, %(mark)s::text);

-- name: mark_inbox_before
-- Marks everything in an inbox until an instant.
select relevo.mark_inbox_before(%(asked)s::jsonb, %(before)s::text::timestamptz, %(mark)s::text);

-- name: set_category
-- Makes or changes a category that people may choose.
select relevo.set_category(%(asked)s::jsonb);

-- name: list_categories
-- Lists the categories, and what an owner chose of them.
select relevo.list_categories(%(asked)s::jsonb);

-- name: choose_category
-- Records what an owner chose of a category, as reported by the app.
select relevo.choose(%(asked)s::jsonb);

-- name: choose_as
-- Records what an owner chose of a category, as reported by whom the caller proved to be; the app's role may not call it.
select relevo.write_choice(%(asked)s::jsonb, %(face)s::text);

-- name: block_owner
-- Sends an owner nothing any more, or again.
select relevo.block_owner(%(asked)s::jsonb, %(blocked)s::boolean);

-- name: set_quiet
-- Sets the quiet hours of an owner, a phone or a project.
select relevo.set_quiet(%(asked)s::jsonb);

-- name: get_quiet
-- Reads the quiet hours of an owner, a phone or a project.
select relevo.get_quiet(%(asked)s::jsonb);

-- name: set_cap
-- Sets, changes or takes away a cap.
select relevo.set_cap(%(asked)s::jsonb);

-- name: list_caps
-- Lists the caps.
select relevo.list_caps(%(project)s::text);

-- name: set_attributes
-- Sets attributes of an owner or a phone.
select relevo.set_attributes(%(asked)s::jsonb);

-- name: get_attributes
-- Reads the attributes of an owner, or those that hold for a phone.
select relevo.get_attributes(%(asked)s::jsonb);

-- name: export_owner
-- Reads a page of what is kept of an owner.
select relevo.export_owner(%(asked)s::jsonb);

-- name: report_opened
-- Notes that a push was opened on its phone.
select relevo.report_opened(%(installation_id)s::text::uuid, %(delivery_id)s::bigint, %(at)s::text::timestamptz, %(action)s::text);

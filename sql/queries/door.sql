-- name: enqueue_event
-- Enqueues one event in the caller's transaction.
select e.event_id, e.created, e.same_content from relevo.enqueue(%(event)s::jsonb) e;

-- name: enqueue_many
-- Enqueues many events in the caller's transaction, in order, with one notification.
select e.event_id, e.created, e.same_content from relevo.enqueue_many(%(events)s::jsonb) e;

-- name: cancel_event
-- Ends an event: nothing of it is sent any more.
select relevo.cancel(%(event_id)s::bigint, %(reason)s::text);

-- name: complete_event
-- Notes that an event was handled elsewhere: what is left of it ends unsent.
select relevo.complete(%(event_id)s::bigint, %(reason)s::text);

-- name: complete_installation
-- Notes that everything for an installation until now was handled elsewhere.
select relevo.complete_installation(%(installation_id)s::uuid);

-- name: delete_events
-- Deletes events with their deliveries.
select relevo.delete_events(%(event_ids)s::bigint[]);

-- name: get_event
-- Reads one event and how far its deliveries are.
select relevo.get_event(%(event_id)s::bigint);

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

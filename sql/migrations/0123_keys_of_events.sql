-- needs relevo 0.3.0
-- Lets keys of events be a project's own: the index. While it is built enqueueing waits; upgrades.md tells how to build it ahead.

create unique index if not exists notification_events_key on relevo.notification_events (event_type, event_key, coalesce(project, ''));

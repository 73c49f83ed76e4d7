-- needs relevo 0.3.0
-- Drops the constraint by which the key of an event was unique in all projects together.

alter table relevo.notification_events drop constraint notification_events_event_type_event_key_key;

-- needs relevo 0.3.0
-- Drops the constraint by which the key of an event was unique in all projects together. A call that began with the function before 0124 names that
-- constraint: it has a moment to come to its end.

select pg_sleep(0.5);
alter table relevo.notification_events drop constraint notification_events_event_type_event_key_key;

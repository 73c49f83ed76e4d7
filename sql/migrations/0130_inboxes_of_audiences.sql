-- needs relevo 0.3.0
-- Lets an event that names phones say for which owners' inboxes it was enqueued.

alter table relevo.event_audience add column inbox_id bigint;
comment on column relevo.event_audience.inbox_id is 'The inbox of the owner that the installation had when the event was enqueued; its delivery is made for that one.';

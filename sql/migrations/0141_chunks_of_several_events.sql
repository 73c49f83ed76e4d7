-- needs relevo 0.3.0
-- Lets a chunk of the queue hold deliveries of several small events.

alter table relevo.due_chunks add column events bigint[];
alter table relevo.due_chunks alter column events set storage main;
alter table relevo.due_chunks add constraint due_chunks_events check (events is null or event_id = 0 and cardinality(events) = cardinality(ids)) not valid;
comment on table relevo.due_chunks is
  'What waits to be sent: up to one request''s worth of deliveries of one type that fall due together. Written and deleted, never changed.';
comment on column relevo.due_chunks.event_id is 'The event of all its deliveries; 0: they are of several events.';
comment on column relevo.due_chunks.events is
  'The events of its deliveries, in the same order, if they are of several: small personal events that were fanned out together. Such a chunk keeps its
id until its last delivery is claimed, and its events know it (notification_events.queued_in).';

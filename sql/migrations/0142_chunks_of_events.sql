-- needs relevo 0.3.0
-- Notes with small events the chunks that hold their deliveries, and keeps room on each page for the updates of an event.

alter table relevo.notification_events add column queued_in bigint[];
alter table relevo.notification_events set (fillfactor = 60);
comment on column relevo.notification_events.queued_in is
  'The chunks of several events in which its fan-out queued its deliveries; null if they were queued apart from others.';

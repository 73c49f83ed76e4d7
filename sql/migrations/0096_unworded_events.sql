-- needs relevo 0.3.0
-- Finds events that wait for their texts. While the index is made, events are read and not written.

create index notification_events_unworded on relevo.notification_events (lane desc, scheduled_at, id)
  where arguments is not null and texts is null and state = 'waiting';
alter table relevo.notification_events validate constraint notification_events_arguments_check;
alter table relevo.notification_events validate constraint notification_events_texts_check;
alter table relevo.notification_events validate constraint texts_of_a_wording;

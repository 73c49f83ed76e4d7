-- needs relevo 0.3.0
-- Drops the CHECKs of events that relevo.enqueue has checked before: PostgreSQL parses the text of each again for every insert.

alter table relevo.notification_events
  drop constraint notification_events_event_type_check,
  drop constraint notification_events_event_key_check,
  drop constraint notification_events_data_check,
  drop constraint notification_events_push_check,
  drop constraint notification_events_audience_check,
  drop constraint notification_events_category_check,
  drop constraint notification_events_lane_check,
  drop constraint notification_events_project_check,
  drop constraint notification_events_arguments_check,
  drop constraint notification_events_collapse_check,
  drop constraint notification_events_batch_check;

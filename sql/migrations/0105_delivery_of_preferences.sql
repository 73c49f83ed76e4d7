-- needs relevo 0.3.0
-- Lets preferences say when what matches is told.

alter table relevo.notification_preferences
  add column delivery text,
  add constraint notification_preferences_delivery_check check (delivery ~ '^(hourly|(daily|weekly (mon|tue|wed|thu|fri|sat|sun)) ([01][0-9]|2[0-3]):[0-5][0-9])$') not valid;
comment on column relevo.notification_preferences.delivery is
  'When what matches is told: null at once, else together, in a digest: hourly, daily 08:00 or weekly mon 08:00, where the phone is.';
comment on table relevo.preference_index is
  'Each enabled preference that is told at once, under its most selective dimension: topic, else keyword, rubro, region, tipo, else everything; sure if that alone decides.';

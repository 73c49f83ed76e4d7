-- needs relevo 0.3.0
-- Lets events have arguments, for the texts of their type.

alter table relevo.notification_events
  add column arguments jsonb,
  add column wording int,
  add column texts jsonb,
  add constraint notification_events_arguments_check check (jsonb_typeof(arguments) = 'object') not valid, -- all of them are null in every row
  add constraint notification_events_texts_check check (jsonb_typeof(texts) = 'object') not valid,
  add constraint texts_of_a_wording check ((texts is null) = (wording is null) and (texts is null or arguments is not null)) not valid;
comment on column relevo.notification_events.arguments is 'What goes into the texts of its type; null if it has a title and body of its own.';
comment on column relevo.notification_events.wording is 'The version of those texts, chosen when it fell due.';
comment on column relevo.notification_events.texts is
  'Title, body and subtitle by locale, rendered; until then it does not fan out. Title and body are those of the default locale.';

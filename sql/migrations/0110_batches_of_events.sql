-- needs relevo 0.3.0
-- Lets events say what they are gathered by, and which batch they tell.

alter table relevo.notification_events
  add column batch jsonb,
  add column batch_id bigint,
  add constraint notification_events_batch_check check (jsonb_typeof(batch) = 'object') not valid;
comment on column relevo.notification_events.batch is 'What it is gathered by, if its type gathers: a key, and what the push that tells several of them says.';
comment on column relevo.notification_events.batch_id is 'The batch that it tells; its events are in inboxes, and it is not.';

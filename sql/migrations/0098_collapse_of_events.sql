-- needs relevo 0.3.0
-- Gives events a collapse key, what their pushes ask for, and how often they were opened and read.

alter table relevo.notification_events
  add column collapse text,
  add column opens boolean,
  add column unread_badge boolean,
  add column opened_count bigint,
  add column read_count bigint,
  add constraint notification_events_collapse_check check (length(collapse) between 1 and 64) not valid;
comment on column relevo.notification_events.collapse is
  'What it is about: a later one of the same type and collapse key takes its place on each phone, and what waits of it ends unsent.';
comment on column relevo.notification_events.opens is 'Whether its type asked for taps when it was enqueued: its pushes tell phones to report them.';
comment on column relevo.notification_events.unread_badge is 'Whether the badge of its pushes is how much is unread in the inbox then.';
comment on column relevo.notification_events.opened_count is 'How many of its deliveries were opened, but for what event_reactions still holds.';
comment on column relevo.notification_events.read_count is 'In how many inboxes it was marked as read, likewise.';

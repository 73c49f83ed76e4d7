-- needs relevo 0.3.0
-- Lets types say whether and how long their events stay in inboxes.

alter table relevo.event_types add column inbox boolean, add column inbox_days integer check (inbox_days between 1 and 3650);
comment on column relevo.event_types.inbox is 'Whether its events are in inboxes; null means that they are.';
comment on column relevo.event_types.inbox_days is 'For how many days they are; null means 90.';
create index event_types_inbox_days on relevo.event_types (inbox_days) where inbox_days is not null;

-- needs relevo 0.3.0
-- Counts how often events were opened and read, without anybody waiting for another's count.

create table relevo.event_reactions (
  id       bigint generated always as identity primary key,
  event_id bigint not null,
  kind     text not null check (kind in ('opened', 'read')),
  count    integer not null -- how many more, or fewer
);
comment on table relevo.event_reactions is
  'Changes of how often events were opened and read, written with the change itself and added to the events by the reaper.';
create index event_reactions_event on relevo.event_reactions (event_id);

alter table relevo.notification_deliveries validate constraint notification_deliveries_opened_action_check;

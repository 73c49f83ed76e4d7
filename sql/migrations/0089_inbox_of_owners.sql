-- needs relevo 0.3.0
-- Gives events without a phone a place in their owner's inbox.

alter table relevo.event_owners add column inbox_place bigint;
comment on column relevo.event_owners.inbox_place is
  'Its place in the owner''s inbox, among the ids of deliveries, if its fan-out found no phone of the owner''s.';

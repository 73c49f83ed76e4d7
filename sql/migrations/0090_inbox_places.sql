-- needs relevo 0.3.0
-- Finds the places in an owner's inbox. While the index is made, owners of events are read and not written.

create index event_owners_inbox on relevo.event_owners (owner, inbox_place) where inbox_place is not null;

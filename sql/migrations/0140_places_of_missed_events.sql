-- needs relevo 0.3.0
-- Finds the places in an owner's inbox by project. While the index is made, owners of events are read and not written.

drop index relevo.event_owners_inbox;
create index event_owners_inbox on relevo.event_owners (owner, inbox_project, inbox_place) where inbox_place is not null;

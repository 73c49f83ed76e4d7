-- needs relevo 0.3.0
-- Drops the CHECK of an event's owners: relevo.enqueue refuses a name that is too long, and PostgreSQL parses the CHECK again for every insert.

alter table relevo.event_owners drop constraint event_owners_owner_check;

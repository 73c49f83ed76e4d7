-- needs relevo 0.3.0
-- Notes the project of an event beside its place in the inbox of an owner whose phones it did not find.

alter table relevo.event_owners add column inbox_project text;
comment on column relevo.event_owners.inbox_project is
  'With inbox_place: the project of the event, empty if it names none, so that equal owner names of other projects are not walked along.';
update relevo.event_owners o set inbox_project = coalesce(e.project, '') from relevo.notification_events e where e.id = o.event_id and o.inbox_place is not null;

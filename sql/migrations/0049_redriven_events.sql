-- needs relevo 0.2.0
-- That an operator had dead letters sent anew was told of every event that was going out in their project then. Now it is noted of which
-- events they were, so many of them, and told of those alone.

alter table relevo.project_incidents
  add column events bigint[],
  add constraint project_incidents_events_check check (cardinality(events) <= 1000) not valid;
alter table relevo.project_incidents validate constraint project_incidents_events_check;
comment on column relevo.project_incidents.events is 'Whose deliveries it was about, at most so many; null if it was about all of its project.';

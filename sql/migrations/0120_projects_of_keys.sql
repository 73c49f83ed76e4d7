-- needs relevo 0.3.0
-- Lets keys of retired events be a project's own: the column.

alter table relevo.event_keys add column project text;
alter table relevo.event_keys add constraint event_keys_project_check check (length(project) between 1 and 200) not valid;
comment on column relevo.event_keys.project is 'That of the event; null if it named none, or was retired before 0.4.';

-- needs relevo 0.3.0
-- Lets what an owner handled on a phone be so in the phone's project alone.

alter table relevo.event_completions
  add column project text,
  add constraint event_completions_project_check check (length(project) between 1 and 200) not valid,
  drop constraint event_completions_pkey;
comment on column relevo.event_completions.project is 'The only project in which the owner handled it; null for all.';
create unique index event_completions_key on relevo.event_completions (event_id, owner, coalesce(project, ''));

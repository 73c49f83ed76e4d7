-- needs relevo 0.3.0
-- Gathers events of one category in a batch.

alter table relevo.batches add column category text not null default ''; -- of its events; empty: none
comment on table relevo.batches is 'Events that are gathered for somebody, or were in the last weeks: at most one open batch for each type, category, key and person.';
drop index relevo.batches_open;
create unique index batches_open on relevo.batches (subject, event_type, key, project, category) where closed_at is null;

-- needs relevo 0.3.0
-- Lets workers report where they cannot write, because a disk is full.

alter table relevo.workers add column unwritable jsonb not null default '[]' check (jsonb_typeof(unwritable) = 'array');
comment on column relevo.workers.unwritable is 'Where its process cannot write, because a disk is full: place (a folder, or log), reason.';

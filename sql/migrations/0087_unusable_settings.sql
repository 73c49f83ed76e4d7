-- needs relevo 0.3.0
-- Lets workers say what of their settings they cannot use.

alter table relevo.workers add column unusable text[] not null default '{}';
comment on column relevo.workers.unusable is 'What of PUSH_PROJECTS_FILE it cannot use as it is now: where each stands, and why.';

-- needs relevo 0.1.0
-- What hangs in a worker, so that others can tell of it; when a project's receipts may be asked for after a failure.

alter table relevo.workers
  add column hung jsonb not null default '[]' check (jsonb_typeof(hung) = 'array');

comment on column relevo.workers.hung is 'Calls of code of others, and runs, that were given up and have not come back: what, project, calls, since.';

alter table relevo.projects
  add column receipt_failures integer not null default 0 check (receipt_failures >= 0),
  add column receipts_after timestamptz;

comment on column relevo.projects.receipts_after is 'Before this moment its receipts are not asked for: the last request for some failed.';

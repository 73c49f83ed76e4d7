-- needs relevo 0.2.0
-- Why a worker that lives does no work: whoever looks from another shell could not see it.

alter table relevo.workers
  add column rests_because text check (length(rests_because) between 1 and 500);

comment on column relevo.workers.rests_because is 'In what the database differs, to this worker, from where it belongs; null while it is at work.';

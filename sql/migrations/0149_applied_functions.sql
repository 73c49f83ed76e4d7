-- needs relevo 0.3.0
-- Remembers which files of `sql/functions` were applied, so that `relevo migrate` replaces what changed.

create table relevo.applied_functions (
  name       text primary key,
  checksum   text, -- of its file; null: it was dropped
  applied_at timestamptz not null default now(),
  applied_by text not null
);
comment on table relevo.applied_functions is
  'The functions of Relevo: of each the file that was applied last, and by which version. `relevo migrate` replaces those whose file changed.';

-- move_counts as 0.3.0 calls it.
create or replace function relevo.count_over_1(events bigint[], formers text[], statuses text[], numbers int[] default '{}') returns void
  language sql volatile
as $$ select relevo.move_counts($1, $2, $3, $4) $$;

revoke all on function relevo.count_over_1 from public;

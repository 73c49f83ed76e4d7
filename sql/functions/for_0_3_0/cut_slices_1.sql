-- cut_slices as 0.3.0 calls it.
create or replace function relevo.cut_slices_1(e relevo.notification_events, named uuid[], most int) returns bigint[]
  language sql volatile
as $$ select relevo.cut_slices($1, $2, $3) $$;

revoke all on function relevo.cut_slices_1 from public;

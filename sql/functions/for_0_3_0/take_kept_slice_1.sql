-- take_kept_slice as 0.3.0 calls it.
create or replace function relevo.take_kept_slice_1(e relevo.notification_events) returns bigint[]
  language sql volatile
as $$ select relevo.take_kept_slice($1) $$;

revoke all on function relevo.take_kept_slice_1 from public;

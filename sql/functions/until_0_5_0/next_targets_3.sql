-- next_targets as 0.3.0 calls it.
create or replace function relevo.next_targets_3(e relevo.notification_events, most int, out is_last boolean, out last_seq bigint, out
    phones uuid[], out providers text[], out projects text[])
  language sql volatile
as $$ select * from relevo.next_targets($1, $2) $$;

revoke all on function relevo.next_targets_3 from public;

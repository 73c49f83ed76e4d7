-- buckets_of as 0.3.0 calls it.
create or replace function relevo.buckets_of_1(e relevo.notification_events) returns text[]
  language sql immutable
as $$ select relevo.event_buckets($1) $$;

revoke all on function relevo.buckets_of_1 from public;

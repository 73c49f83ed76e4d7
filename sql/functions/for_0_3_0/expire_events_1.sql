-- expire_events as 0.3.0 calls it.
create or replace function relevo.expire_events_1(late bigint[], at timestamptz) returns void
  language sql volatile
as $$ select relevo.expire_events($1, $2) $$;

revoke all on function relevo.expire_events_1 from public;

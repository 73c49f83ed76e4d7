-- lock_personal_events as 0.3.0 calls it.
create or replace function relevo.lock_told_alone_1(installations uuid[], of_owner text) returns void
  language sql volatile
as $$ select relevo.lock_personal_events($1, $2) $$;

revoke all on function relevo.lock_told_alone_1 from public;

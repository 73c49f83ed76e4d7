-- Lets what is written of one owner take turns with phones that are being registered for them: neither misses the other.
create or replace function relevo.lock_owner(of_owner text) returns void language sql volatile
as $$
  select pg_advisory_xact_lock(hashtextextended('relevo.owner:' || of_owner, 0))
$$;

revoke all on function relevo.lock_owner from public;

-- Lets what is written of one owner take turns with phones that are being registered for them: neither misses the other.
create or replace function relevo.lock_owner(of_owner text) returns void language plpgsql volatile
as $$
begin
  perform pg_advisory_xact_lock_shared(hashtextextended('relevo.owners', 0)); -- a long list of phones takes this one alone
  perform pg_advisory_xact_lock(hashtextextended('relevo.owner:' || of_owner, 0));
end
$$;

revoke all on function relevo.lock_owner from public;

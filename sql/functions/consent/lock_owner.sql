-- Lets what is written of one owner take turns with phones that are being registered for them: neither misses the other.
create or replace function relevo.lock_owner(of_owner text) returns void language plpgsql volatile
as $$
begin
  perform relevo.lock_alone('owner:' || of_owner);
end
$$;

revoke all on function relevo.lock_owner from public;

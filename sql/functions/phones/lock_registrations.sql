-- Serialises phones that register one token at the same moment, and calls that choose for an owner. It takes a lock for each token, then one for
-- each owner, in one order however long the list is.
create or replace function relevo.lock_registrations(given jsonb) returns void
  language plpgsql volatile
as $$
begin
  perform relevo.take_turns(array(select 'token:' || (g.i ->> 'token') from jsonb_array_elements(given) as g(i) where g.i ->> 'token' is not null));
  -- what is being chosen is found by the trigger
  perform relevo.lock_all_shared(array(select 'owner:' || (g.i ->> 'owner') from jsonb_array_elements(given) as g(i) where g.i ->> 'owner' is not null));
end
$$;

revoke all on function relevo.lock_registrations from public;

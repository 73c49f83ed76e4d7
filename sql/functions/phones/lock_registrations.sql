-- Lets phones that claim one token at once take turns, and whoever is choosing for an owner. A long list would fill the table of locks: it takes
-- one in place of a lock for each owner.
create or replace function relevo.lock_registrations(given jsonb) returns void
  language plpgsql volatile
as $$
begin
  if jsonb_array_length(given) > 20 then
    perform relevo.lock_alone('owners');
    return;
  end if;
  perform relevo.take_turn('token:' || t.token)
     from (select distinct g.i ->> 'token' as token from jsonb_array_elements(given) as g(i) where g.i ->> 'token' is not null order by 1) t;
  perform relevo.lock_shared('owner:' || o.owner) -- what is being chosen is found by the trigger
     from (select distinct g.i ->> 'owner' as owner from jsonb_array_elements(given) as g(i) where g.i ->> 'owner' is not null order by 1) o;
end
$$;

revoke all on function relevo.lock_registrations from public;

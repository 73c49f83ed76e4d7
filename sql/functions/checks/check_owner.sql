-- Refuses an owner's name that is empty or too long.
create or replace function relevo.check_owner(owner text) returns void language plpgsql immutable
as $$
begin
  if length(owner) between 1 and 200 then
    return;
  end if;
  perform relevo.refuse('owner must be text of 1 to 200 characters');
end
$$;

revoke all on function relevo.check_owner from public;

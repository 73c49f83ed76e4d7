-- Deletes quiet hours that nobody has any more, up to so many, and returns how many. Only those are locked: whoever takes one of them at this moment
-- holds it, and then it is looked at again.
create or replace function relevo.prune_profiles(most int) returns int
  language plpgsql volatile
as $$
declare
  unused int[];
  gone int;
begin
  if not exists (select from relevo.quiet_profiles) then
    return 0;
  end if;
  unused := array(select p.id from relevo.quiet_profiles p where p.id <> all ((select relevo.used_profiles())::int[]) order by p.id limit most);
  if unused = '{}' then
    return 0;
  end if;
  unused := array(select p.id from relevo.quiet_profiles p where p.id = any (unused) order by p.id for update skip locked);
  delete from relevo.quiet_profiles p where p.id = any (unused) and p.id <> all ((select relevo.used_profiles())::int[]); -- anew: it sees who took one until then
  get diagnostics gone = row_count;
  return gone;
end
$$;

revoke all on function relevo.prune_profiles from public;

-- Deletes quiet hours that nobody has any more, up to so many, and returns how many. They are locked first: whoever takes one at this moment holds it.
create or replace function relevo.prune_profiles(most int) returns int
  language plpgsql volatile
as $$
declare
  used int[];
  unused int[];
  gone int;
begin
  if not exists (select from relevo.quiet_profiles) then
    return 0;
  end if;
  unused := array(select p.id from relevo.quiet_profiles p order by p.id for update skip locked);
  -- a new statement: it sees who took one until then
  used := array(select i.quiet from relevo.device_installations i where i.quiet is not null
                union select i.owner_quiet from relevo.device_installations i where i.owner_quiet is not null
                union select r.quiet from relevo.owner_rules r where r.quiet is not null
                union select d.quiet from relevo.quiet_defaults d);
  delete from relevo.quiet_profiles p where p.id in (select u.id from unnest(unused) as u(id) where u.id <> all (used) order by u.id limit most);
  get diagnostics gone = row_count;
  return gone;
end
$$;

revoke all on function relevo.prune_profiles from public;

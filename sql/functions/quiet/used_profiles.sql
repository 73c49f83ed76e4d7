-- Returns the quiet hours that a phone, an owner or a project has.
create or replace function relevo.used_profiles() returns int[]
  language sql stable
as $$
  select array(select i.quiet from relevo.device_installations i where i.quiet is not null
               union select i.owner_quiet from relevo.device_installations i where i.owner_quiet is not null
               union select r.quiet from relevo.owner_rules r where r.quiet is not null
               union select d.quiet from relevo.quiet_defaults d)
$$;

revoke all on function relevo.used_profiles from public;

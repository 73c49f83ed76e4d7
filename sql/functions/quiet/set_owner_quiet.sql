-- Sets the quiet hours of an owner's phones, in one project or, if it is empty, in all; returns whether something changed.
create or replace function relevo.set_owner_quiet(of_owner text, of_project text, asked jsonb) returns boolean
  language plpgsql volatile
as $$
declare
  former int;
  profile int;
begin
  perform relevo.lock_owner(of_owner);
  select r.quiet into former from relevo.owner_rules r where r.owner = of_owner and r.project = of_project;
  profile := relevo.asked_profile(asked, former, false);
  if profile is not distinct from former then
    return false;
  end if;
  insert into relevo.owner_rules as r (owner, project, quiet) values (of_owner, of_project, profile)
  on conflict (owner, project) do update set quiet = excluded.quiet;
  delete from relevo.owner_rules r where r.owner = of_owner and r.blocked_at is null and r.choices = '{}' and r.quiet is null and r.attributes is null;
  perform relevo.apply_to_phones(of_owner, of_project);
  perform relevo.recheck_quiet(array(select i.installation_id from relevo.device_installations i
                                      where i.owner = of_owner and (of_project = '' or i.project = of_project)), of_owner);
  return true;
end
$$;

revoke all on function relevo.set_owner_quiet from public;

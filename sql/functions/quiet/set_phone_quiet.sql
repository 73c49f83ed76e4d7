-- Sets the quiet hours of one phone; returns whether something changed.
create or replace function relevo.set_phone_quiet(phone uuid, asked jsonb) returns boolean
  language plpgsql volatile
as $$
declare
  i relevo.device_installations;
  profile int;
begin
  select n.* into i from relevo.device_installations n where n.installation_id = phone for no key update;
  profile := relevo.asked_profile(asked, i.quiet, relevo.said_zone(i.timezone, null, i.owner_quiet, i.project) is not null);
  if profile is not distinct from i.quiet then
    return false;
  end if;
  update relevo.device_installations n set quiet = profile, updated_at = now() where n.installation_id = phone;
  perform relevo.recheck_quiet(array[phone], i.owner);
  return true;
end
$$;

revoke all on function relevo.set_phone_quiet from public;

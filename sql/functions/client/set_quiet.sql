-- Sets the quiet hours of an owner's phones, of one phone, or of a project's phones that have no others: {"owner": "user-7", "project": …} or
-- {"installation": "…"} or {"project": "default"}, with "windows": ["22:00-07:00", "sat,sun 07:00-10:00"] and "zone": "America/Santiago". Without
-- windows they are taken back; with none in the list it is never quiet. Personal events that wait are looked at again at once. Returns whether something changed.
create or replace function relevo.set_quiet(asked jsonb) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  of_owner text := asked ->> 'owner';
  phone uuid;
  profile int;
  changed boolean;
begin
  perform relevo.check_owner_question(asked, array['installation', 'windows', 'zone'], false);
  perform relevo.check_timezone(asked -> 'zone', 'zone');
  if num_nonnulls(of_owner, asked ->> 'installation') > 1 then
    perform relevo.refuse('quiet hours are those of an owner or of an installation: name one of them');
  end if;
  if num_nonnulls(of_owner, asked ->> 'installation', asked ->> 'project') = 0 then
    perform relevo.refuse('owner, installation or project must be given');
  end if;
  profile := relevo.share_profile(asked -> 'windows', asked ->> 'zone');
  if asked ->> 'installation' is not null then
    phone := relevo.known_phone(asked -> 'installation');
    update relevo.device_installations i set quiet = profile, updated_at = now()
     where i.installation_id = phone and i.quiet is distinct from profile;
    changed := found;
    perform relevo.recheck_quiet(array[phone], null);
  elsif of_owner is not null then
    perform relevo.lock_owner(of_owner);
    if profile is not distinct from (select r.quiet from relevo.owner_rules r where r.owner = of_owner and r.project = coalesce(asked ->> 'project', '')) then
      return false;
    end if;
    insert into relevo.owner_rules as r (owner, project, quiet) values (of_owner, coalesce(asked ->> 'project', ''), profile)
    on conflict (owner, project) do update set quiet = excluded.quiet;
    changed := true;
    delete from relevo.owner_rules r where r.owner = of_owner and r.blocked_at is null and r.choices = '{}' and r.quiet is null;
    perform relevo.apply_to_phones(of_owner, coalesce(asked ->> 'project', ''));
    perform relevo.recheck_quiet(array(select i.installation_id from relevo.device_installations i where i.owner = of_owner), of_owner);
  elsif profile is null then
    delete from relevo.quiet_defaults d where d.project = asked ->> 'project';
    changed := found;
    perform relevo.follow_default_zone(asked ->> 'project');
  else
    insert into relevo.quiet_defaults as d (project, quiet) values (asked ->> 'project', profile)
    on conflict (project) do update set quiet = excluded.quiet where d.quiet <> excluded.quiet;
    changed := found;
    perform relevo.follow_default_zone(asked ->> 'project');
  end if;
  return changed;
end
$$;

revoke all on function relevo.set_quiet from public;

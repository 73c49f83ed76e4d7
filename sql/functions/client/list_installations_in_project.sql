-- Returns the installations of an owner, newest first, those of one project if it is given, and whether each may receive pushes; no token
-- among it.
create or replace function relevo.list_installations_in_project(of_owner text, of_project text, most int) returns jsonb
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform relevo.check_owner(of_owner);
  if coalesce(most, 0) not between 1 and 1000 then
    perform relevo.refuse('most must be between 1 and 1000');
  end if;
  return coalesce((
    select jsonb_agg(jsonb_build_object('installation_id', i.installation_id, 'owner', i.owner, 'project', i.project, 'provider', i.provider,
             'platform', i.platform, 'environment', case i.provider when 'apns' then i.part end, 'part', i.part, 'locale', i.locale, 'timezone', i.timezone, 'opt_outs', to_jsonb(i.opt_outs), 'receives', relevo.may_receive(i),
             'why_not', relevo.why_not_allowed(i), 'registered_at', i.registered_at, 'updated_at', i.updated_at,
             'preferences', (select coalesce(jsonb_agg(p.name order by p.name), '[]') from relevo.notification_preferences p
                              where p.installation_id = i.installation_id and p.enabled)) order by i.seq desc)
      from (select * from relevo.device_installations i
             where i.owner = of_owner and (of_project is null or i.project = of_project) order by i.seq desc limit most) i), '[]');
end
$$;

revoke all on function relevo.list_installations_in_project from public;

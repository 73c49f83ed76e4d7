-- Returns the quiet hours of an owner, a phone or a project, in the form that set_quiet takes. For a phone it returns the hours that apply, whose
-- hours and zone they are, and until when the phone is quiet if it is now.
create or replace function relevo.get_quiet(asked jsonb) returns jsonb
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  told jsonb;
  phone uuid;
begin
  asked := relevo.current_names(asked);
  perform relevo.check_owner_question(asked, array['installation_id'], false);
  if num_nonnulls(asked ->> 'owner', asked ->> 'installation_id', asked ->> 'project') = 0 then
    perform relevo.refuse('owner, installation or project must be given');
  end if;
  if asked ->> 'installation_id' is not null then
    phone := relevo.known_phone(asked -> 'installation_id');
    select jsonb_build_object('windows', relevo.shown_windows(q.windows), 'zone', q.zone, 'hours_of', q.hours_of, 'zone_of', q.zone_of,
                              'quiet_until', relevo.end_of_quiet(q.windows, q.zone, now()))
      into told
      from relevo.device_installations i cross join lateral relevo.quiet_of(i.quiet, i.owner_quiet, i.project, i.timezone) q
     where i.installation_id = phone;
  else
    select jsonb_build_object('windows', relevo.shown_windows(p.windows), 'zone', nullif(p.zone, '')) into told
      from relevo.quiet_profiles p
     where p.id = case when asked ->> 'owner' is not null
                       then (select r.quiet from relevo.owner_rules r where r.owner = asked ->> 'owner' and r.project in (asked ->> 'project', '') and r.quiet is not null
                              order by r.project desc limit 1)
                       else (select d.quiet from relevo.quiet_defaults d where d.project = asked ->> 'project') end;
  end if;
  return jsonb_build_object('windows', null, 'zone', null, 'hours_of', null, 'zone_of', null, 'quiet_until', null) || coalesce(told, '{}');
end
$$;

revoke all on function relevo.get_quiet from public;

-- Sets the quiet hours of an owner's phones, of one phone, or of a project's phones that have no others: {"owner": "user-7", "project": …} or
-- {"installation_id": "…"} or {"project": "default"}, with "windows": ["22:00-07:00", "sat,sun 07:00-10:00"] and "zone": "America/Santiago". A field that is left out
-- stays as it is; windows null removes the hours, and an empty list means never quiet. An owner's or a project's hours need a zone, and so do those of a phone
-- without one. Personal events that wait are looked at again. Returns whether something changed.
create or replace function relevo.set_quiet(asked jsonb) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  asked := relevo.current_names(asked);
  perform relevo.check_owner_question(asked, array['installation_id', 'windows', 'zone'], false);
  perform relevo.check_timezone(asked -> 'zone', 'zone');
  if num_nonnulls(asked ->> 'owner', asked ->> 'installation_id') > 1 then
    perform relevo.refuse('quiet hours are those of an owner or of an installation: name one of them');
  end if;
  if num_nonnulls(asked ->> 'owner', asked ->> 'installation_id', asked ->> 'project') = 0 then
    perform relevo.refuse('owner, installation or project must be given');
  end if;
  if asked ->> 'installation_id' is not null then
    return relevo.set_phone_quiet(relevo.known_phone(asked -> 'installation_id'), asked);
  elsif asked ->> 'owner' is not null then
    return relevo.set_owner_quiet(asked ->> 'owner', coalesce(asked ->> 'project', ''), asked);
  end if;
  return relevo.set_project_quiet(asked ->> 'project', asked);
end
$$;

revoke all on function relevo.set_quiet from public;

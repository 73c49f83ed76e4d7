-- Returns the attributes of an owner, {"owner": "user-7", "project": …}, or those that hold for a phone, {"installation_id": "…"}: an object, empty if there are none.
create or replace function relevo.get_attributes(asked jsonb) returns jsonb
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  phone uuid;
begin
  asked := relevo.current_names(asked);
  perform relevo.check_owner_question(asked, array['installation_id'], false);
  if num_nonnulls(asked ->> 'owner', asked ->> 'installation_id') <> 1 then
    perform relevo.refuse('owner or installation must be given, and not both');
  end if;
  if asked ->> 'installation_id' is not null then
    phone := relevo.known_phone(asked -> 'installation_id');
    return coalesce((select relevo.known_attributes(i.owner_attributes, i.attributes) from relevo.device_installations i
                      where i.installation_id = phone and i.project = coalesce(asked ->> 'project', i.project)), '{}');
  end if;
  return coalesce((select (relevo.rules_for_phone(asked ->> 'owner', coalesce(asked ->> 'project', relevo.project_of_owners(), ''), null)).attributes), '{}');
end
$$;

revoke all on function relevo.get_attributes from public;

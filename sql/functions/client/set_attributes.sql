-- Sets attributes of an owner or a phone: {"owner": "user-7", "project": …, "attributes": {"plan": "pro", "tags": ["a", "b"], "old": null}} or {"installation_id": "…", …}.
-- An attribute that is left out stays as it is, and null removes it. An owner's hold for the phones in the project, and a phone's go before its owner's. Returns whether
-- something changed.
create or replace function relevo.set_attributes(asked jsonb) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  phone uuid;
  of_project text := coalesce(asked ->> 'project', relevo.project_of_owners(), '');
  known jsonb;
  changed jsonb;
begin
  asked := relevo.current_names(asked);
  perform relevo.check_owner_question(asked, array['installation_id', 'attributes'], false);
  perform relevo.check_attributes(asked -> 'attributes', 'attributes');
  if num_nonnulls(asked ->> 'owner', asked ->> 'installation_id') <> 1 then
    perform relevo.refuse('owner or installation must be given, and not both');
  end if;
  if asked ->> 'installation_id' is not null then
    phone := relevo.known_phone(asked -> 'installation_id');
    select i.attributes into known from relevo.device_installations i
     where i.installation_id = phone and i.project = coalesce(asked ->> 'project', i.project) for no key update;
    if not found then
      perform relevo.refuse(format('there is no installation %s', phone));
    end if;
    changed := relevo.changed_attributes(known, asked -> 'attributes');
    if changed is not distinct from known then
      return false;
    end if;
    update relevo.device_installations i set attributes = changed, updated_at = now() where i.installation_id = phone;
    return true;
  end if;
  perform relevo.lock_owner(asked ->> 'owner');
  select r.attributes into known from relevo.owner_rules r where r.owner = asked ->> 'owner' and r.project = of_project;
  changed := relevo.changed_attributes(known, asked -> 'attributes');
  if changed is not distinct from known then
    return false;
  end if;
  insert into relevo.owner_rules as r (owner, project, attributes) values (asked ->> 'owner', of_project, changed)
  on conflict (owner, project) do update set attributes = excluded.attributes;
  delete from relevo.owner_rules r
   where r.owner = asked ->> 'owner' and r.blocked_at is null and r.choices = '{}' and r.quiet is null and r.attributes is null;
  perform relevo.apply_to_phones(asked ->> 'owner', of_project);
  return true;
end
$$;

revoke all on function relevo.set_attributes from public;

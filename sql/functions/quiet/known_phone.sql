-- Returns the id of an installation that is there; refuses any other, by name.
create or replace function relevo.known_phone(given jsonb) returns uuid
  language plpgsql stable
as $$
declare
  phone uuid;
begin
  if given #>> '{}' !~ '^[0-9A-Fa-f]{8}(-?[0-9A-Fa-f]{4}){3}-?[0-9A-Fa-f]{12}$' then
    perform relevo.refuse(format('installation must be a UUID, got %s', relevo.shown(given)));
  end if;
  select i.installation_id into phone from relevo.device_installations i where i.installation_id = (given #>> '{}')::uuid;
  if phone is null then
    perform relevo.refuse(format('there is no installation %s', given #>> '{}'));
  end if;
  return phone;
end
$$;

revoke all on function relevo.known_phone from public;

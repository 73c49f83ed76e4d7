-- Returns the provider of a given installation: what is said, or that of the known one with its id, or with its token and owner, or Expo.
create or replace function relevo.provider_of(installation jsonb) returns text language plpgsql stable
as $$
begin
  return coalesce(installation ->> 'provider',
    (select i.provider from relevo.device_installations i where i.installation_id = (installation ->> 'installation_id')::uuid),
    case when installation ->> 'installation_id' is null then (select i.provider from relevo.device_installations i
      where i.token = installation ->> 'token' and i.owner is not distinct from installation ->> 'owner' and not i.for_news
      order by i.provider <> 'expo', i.seq limit 1) end, 'expo');
end
$$;

revoke all on function relevo.provider_of from public;

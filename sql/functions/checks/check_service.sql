-- Refuses an installation of which its provider's services cannot be told apart: what names them goes with the provider, and with the token.
create or replace function relevo.check_service(installation jsonb, served text) returns void language plpgsql stable
as $$
declare
  known relevo.device_installations;
begin
  if installation ->> 'environment' is not null then
    if installation -> 'environment' not in ('"production"', '"sandbox"') then
      perform relevo.refuse('environment must be production or sandbox');
    elsif served <> 'apns' then
      perform relevo.refuse('environment goes with provider apns alone');
    end if;
  end if;
  select * into known from relevo.device_installations i where i.installation_id = (installation ->> 'installation_id')::uuid;
  if relevo.native_platform(served) is not null and coalesce(installation ->> 'project', known.project, 'default') !~ '^[^:]{1,100}$' then
    perform relevo.refuse(format('project must be text of 1 to 100 characters without a colon, with provider %s', served));
  elsif known.token is not null and not installation ? 'token'
        and (known.provider <> served or served = 'apns' and known.part <> coalesce(installation ->> 'environment', known.part)) then
    perform relevo.refuse('token must be given, too, with another provider or environment');
  end if;
end
$$;

revoke all on function relevo.check_service from public;

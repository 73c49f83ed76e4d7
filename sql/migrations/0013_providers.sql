-- needs relevo 0.1.0
-- Providers by name: a delivery goes to the push service its installation names; one that nobody serves is refused at the door.

create table relevo.providers (
  provider text primary key check (provider ~ '^[a-z][a-z0-9-]{0,39}$')
);

comment on table relevo.providers is 'The push services by name that this fleet serves, or has served.';

insert into relevo.providers values ('expo'), ('webhook');

create function relevo.refuse_unknown_provider() returns trigger language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
begin
  if not exists (select from relevo.providers p where p.provider = new.provider) then
    perform relevo.refuse(format('provider must be one of %s, got %s',
      (select string_agg(p.provider, ', ' order by p.provider) from relevo.providers p), new.provider));
  end if;
  return new;
end
$$;

revoke all on function relevo.refuse_unknown_provider() from public;

create trigger refuse_unknown_provider before insert or update of provider on relevo.device_installations
  for each row when (new.provider <> 'expo') execute function relevo.refuse_unknown_provider();

-- The name under which a provider's project has its rate, its breaker and its connections: Expo's projects have their own.
create function relevo.sending_project(provider text, project text) returns text language sql immutable parallel safe
return case when provider = 'expo' then project else left(provider || '::' || project, 200) end;

revoke all on function relevo.sending_project(text, text) from public;

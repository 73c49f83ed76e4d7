-- Returns the name under which a provider's project has its rate, its breaker and its connections, apart for each of the provider's services;
-- Expo's projects have their own name. It is inlined.
create or replace function relevo.sending_project(provider text, project text, part text default '') returns text
  language sql immutable parallel safe
return case when provider = 'expo' then project
            when part = '' then left(provider || '::' || project, 200)
            else left(provider || '::' || project || '::' || part, 200) end;

revoke all on function relevo.sending_project from public;

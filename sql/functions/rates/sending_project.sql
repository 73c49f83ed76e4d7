-- Returns the name under which a provider's project has its rate, its breaker and its connections: Expo's projects have their own name.
create or replace function relevo.sending_project(provider text, project text) returns text language sql immutable parallel safe
return case when provider = 'expo' then project else left(provider || '::' || project, 200) end;

revoke all on function relevo.sending_project from public;

-- Returns why an installation may not receive pushes at all, or null.
create or replace function relevo.why_not_allowed(i relevo.device_installations) returns text language sql stable
  return case when relevo.may_receive(i) then null
              when not i.active then 'unregistered'
              when i.invalidated_at is not null then i.invalid_reason
              when i.permission <> 'granted' then 'permission ' || i.permission
              when i.blocked then 'owner blocked'
              when i.token is null then 'no token'
              else 'not push capable' end;

revoke all on function relevo.why_not_allowed from public;

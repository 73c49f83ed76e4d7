-- Returns whether pushes may go to an installation at all.
create or replace function relevo.may_receive(i relevo.device_installations) returns boolean language sql stable
  return i.active and i.push_capable and i.permission = 'granted' and i.invalidated_at is null and i.token is not null and not i.blocked;

revoke all on function relevo.may_receive from public;

-- Returns what keeps a phone from being sent to; null if nothing does. It is inlined.
create or replace function relevo.obstacle_of_phone(installation_id uuid, may_receive boolean, unwanted text) returns text
  language sql immutable parallel safe
  return case when installation_id is null then 'installation_gone'
              when not may_receive then 'not_allowed' else unwanted end;

revoke all on function relevo.obstacle_of_phone from public;

-- obstacle_of_phone as 0.3.0 calls it, which knows no choices of owners.
create or replace function relevo.phone_obstacle(installation_id uuid, may_receive boolean, opt_outs text[], category text) returns text
  language sql stable parallel safe
  return case when installation_id is null then 'installation_gone'
              when not may_receive then 'not_allowed'
              when category = any (opt_outs) and relevo.category_rule(category) is distinct from 'mandatory' then 'opted_out' end;

revoke all on function relevo.phone_obstacle from public;

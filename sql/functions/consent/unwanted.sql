-- Returns why a phone, or its owner, does not want a category of this rule; null if it is wanted. It is inlined.
create or replace function relevo.unwanted(opt_outs text[], refused text[], accepted text[], category text, rule text) returns text
  language sql immutable parallel safe
  return case when category is null or rule = 'mandatory' then null
              when category = any (opt_outs) then 'opted_out'
              when category = any (refused) then 'refused'
              when rule = 'off' and category <> all (accepted) then 'not_accepted' end;

revoke all on function relevo.unwanted from public;

-- Returns whether some attributes have one of the values of one attribute: of a list, its own or the wanted one, any counts.
create or replace function relevo.has_attribute(known jsonb, name text, wanted jsonb) returns boolean
  language sql immutable
return coalesce(jsonb_path_exists(known -> name, '$[*] ? (@ == $wanted[*])', jsonb_build_object('wanted', wanted)), false);

revoke all on function relevo.has_attribute from public;

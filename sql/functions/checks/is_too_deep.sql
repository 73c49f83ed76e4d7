-- Returns whether a JSON value is nested deeper than 100 levels.
create or replace function relevo.is_too_deep(value jsonb) returns boolean
  language sql immutable
return jsonb_path_exists(value, 'strict $.**{100} ? (@.type() == "object" || @.type() == "array")');

revoke all on function relevo.is_too_deep from public;

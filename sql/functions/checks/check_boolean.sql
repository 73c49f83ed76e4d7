-- Refuses a field that is neither true nor false, by name.
create or replace function relevo.check_boolean(given jsonb, name text) returns void language plpgsql immutable
as $$
begin
  if coalesce(jsonb_typeof(given -> name), 'null') not in ('null', 'boolean') then
    perform relevo.refuse(format('%s must be true or false', name));
  end if;
end
$$;

revoke all on function relevo.check_boolean from public;

-- Raises the error of a refused call, in a sentence; long names in it are cut, whichever function quotes them.
create or replace function relevo.refuse(complaint text) returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using errcode = 'invalid_parameter_value',
    message = case when length(complaint) > 1000 then left(complaint, 997) || '...' else complaint end;
end
$$;

revoke all on function relevo.refuse from public;

-- A complaint names what is wrong; a name that somebody made a megabyte long is cut, whichever function quotes it.
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

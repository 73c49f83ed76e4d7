-- Returns a time zone if this server knows it, else null: what one knew that was updated, another may not, and one phone must not stop the others.
create or replace function relevo.known_zone(zone text) returns text
  language plpgsql stable strict
as $$
begin
  perform now() at time zone zone;
  return zone;
exception when invalid_parameter_value then
  return null;
end
$$;

revoke all on function relevo.known_zone from public;

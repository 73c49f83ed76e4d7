-- Refuses what is no time zone that PostgreSQL knows by its IANA name. Text that PostgreSQL would read as a rule of its own (a name with a number behind it)
-- or for an abbreviation is none, nor is one in other capitals; to list all zones would read hundreds of files.
create or replace function relevo.check_timezone(given jsonb, field text default 'timezone') returns void
  language plpgsql stable
as $$
begin
  if given is null or given = 'null' then
    return;
  end if;
  if jsonb_typeof(given) = 'string' and length(given #>> '{}') <= 64
     and given #>> '{}' !~ '[A-Z]{4}' and given #>> '{}' ~ '^(UTC|GMT|[A-Z][A-Za-z_-]+(/[A-Z][A-Za-z_-]+){1,2}|Etc/GMT([+]([0-9]|1[0-2])|-([0-9]|1[0-4])))$' then
    perform now() at time zone (given #>> '{}');
    return;
  end if;
  raise invalid_parameter_value;
exception when invalid_parameter_value then
  perform relevo.refuse(format('%s must be the IANA name of a time zone, such as America/Santiago, got %s', field, relevo.shown(given)));
end
$$;

revoke all on function relevo.check_timezone from public;

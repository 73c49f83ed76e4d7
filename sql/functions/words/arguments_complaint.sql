-- Returns which of the arguments that texts name is missing in those of an event, or of another kind, in a sentence; null if all are there.
create or replace function relevo.arguments_complaint(named jsonb, given jsonb) returns text
  language plpgsql stable
as $$
declare
  name text;
  kind text;
  value jsonb;
begin
  for name, kind in select n.key, n.value ->> 'kind' from jsonb_each(named) n order by n.key collate "C" loop
    value := given -> name;
    if coalesce(jsonb_typeof(value), 'null') = 'null' then
      return format('argument %s is missing: the texts of its type name it', name);
    end if;
    case kind
      when 'number' then
        continue when jsonb_typeof(value) = 'number' and abs((value #>> '{}')::numeric) <= 999999999999999999 and length(value #>> '{}') <= 40;
        return format('argument %s must be a number of at most 18 digits before the point', name);
      when 'text' then
        continue when jsonb_typeof(value) = 'string' and length(value #>> '{}') <= 500;
        return format('argument %s must be text of at most 500 characters', name);
      else
        begin
          continue when jsonb_typeof(value) = 'string' and value #>> '{}'
            ~ E'^(19|2[0-2])\\d\\d-\\d\\d-\\d\\d(T([01]\\d|2[0-3]):[0-5]\\d(:[0-5]\\d([.]\\d{1,6})?)?(Z|[+-](0\\d|1[0-4]):[0-5]\\d))?$'
            and (value #>> '{}')::timestamptz is not null;
        exception when datetime_field_overflow or invalid_datetime_format then
          null;
        end;
        return format('argument %s must be a time with its offset, such as 2026-09-06T04:30:00Z, or a date', name);
    end case;
  end loop;
  return null;
end
$$;

revoke all on function relevo.arguments_complaint from public;

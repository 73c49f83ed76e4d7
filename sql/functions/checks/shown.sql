-- Returns the beginning of a value, for an error message.
create or replace function relevo.shown(value jsonb) returns text
  language sql immutable
return case when value is null or value = 'null' then 'not given'
            when jsonb_typeof(value) = 'string' and length(value #>> '{}') > 30 then to_jsonb(left(value #>> '{}', 30) || '…')::text
            else value::text end;

revoke all on function relevo.shown from public;

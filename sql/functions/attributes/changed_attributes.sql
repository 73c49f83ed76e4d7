-- Returns attributes as they are once some were set, or removed by a null; null if none are left. Refuses more than fit.
create or replace function relevo.changed_attributes(known jsonb, given jsonb) returns jsonb
  language plpgsql immutable
as $$
declare
  changed jsonb := jsonb_strip_nulls(coalesce(known, '{}') || given);
begin
  if (select count(*) from jsonb_object_keys(changed)) > 50 or octet_length(changed::text) > 8000 then
    perform relevo.refuse('attributes must be at most 50, of 8000 bytes together');
  end if;
  return nullif(changed, '{}');
end
$$;

revoke all on function relevo.changed_attributes from public;

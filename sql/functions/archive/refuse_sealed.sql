-- Trigger of a sealed month: refuses every write.
create or replace function relevo.refuse_sealed() returns trigger language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using errcode = 'object_not_in_prerequisite_state',
    message = format('%I.%I is sealed for the archive', tg_table_schema, tg_table_name),
    hint = 'Nothing is written to a month that is past its retention.';
end
$$;

revoke all on function relevo.refuse_sealed from public;

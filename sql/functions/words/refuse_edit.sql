-- Refuses to change a row that is kept as it was written.
create or replace function relevo.refuse_edit() returns trigger
  language plpgsql
as $$
begin
  raise exception using errcode = 'object_not_in_prerequisite_state',
    message = format('a version in relevo.%I is never changed: save the correction as another one', tg_table_name);
end
$$;

revoke all on function relevo.refuse_edit from public;

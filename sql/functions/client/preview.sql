-- Returns whom an event would reach.
create or replace function relevo.preview(event jsonb, most int default 10) returns jsonb
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if coalesce(most, -1) not between 0 and 100 then
    perform relevo.refuse('most must be between 0 and 100');
  end if;
  return relevo.preview_draft(event, most, null);
end
$$;

revoke all on function relevo.preview from public;

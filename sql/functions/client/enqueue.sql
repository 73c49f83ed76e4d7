-- Enqueues one event, as enqueue_many does.
create or replace function relevo.enqueue(event jsonb)
  returns table (event_id bigint, created boolean, same_content boolean, unknown_installations uuid[])
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  return query select * from relevo.enqueue_plain(event);
  if not found then
    perform relevo.refuse_types_of_relevo(jsonb_build_array(event));
    return query select * from relevo.enqueue_any_type(jsonb_build_array(event));
  end if;
end
$$;

revoke all on function relevo.enqueue from public;

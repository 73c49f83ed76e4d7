-- Enqueues events of the app's types.
create or replace function relevo.enqueue_many(events jsonb)
  returns table (event_id bigint, created boolean, same_content boolean, unknown_installations uuid[])
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if jsonb_typeof(events) = 'array' and jsonb_array_length(events) = 1 then
    return query select * from relevo.enqueue(events -> 0);
  else
    perform relevo.refuse_types_of_relevo(events);
    return query select * from relevo.enqueue_any_type(events);
  end if;
end
$$;

revoke all on function relevo.enqueue_many from public;

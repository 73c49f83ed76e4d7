-- Enqueues events of the app's types.
create or replace function relevo.enqueue_many(events jsonb)
  returns table (event_id bigint, created boolean, same_content boolean, unknown_installations uuid[])
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if jsonb_typeof(events) = 'array' and jsonb_array_length(events) = 1 then
    return query select * from relevo.enqueue_plain(events -> 0);
    if found then
      return;
    end if;
  end if;
  if jsonb_typeof(events) = 'array' and events @? '$[*].type ? (@ starts with "relevo.")' then
    perform relevo.refuse_event(case when jsonb_array_length(events) > 1 then min(e.place) end, 'type must not begin with relevo., which is for Relevo itself')
       from jsonb_array_elements(events) with ordinality as e(one, place)
      where jsonb_typeof(e.one -> 'type') = 'string' and starts_with(e.one ->> 'type', 'relevo.');
  end if;
  return query select * from relevo.enqueue_any_type(events);
end
$$;

revoke all on function relevo.enqueue_many from public;

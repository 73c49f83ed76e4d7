-- Enqueues one event, as enqueue_many does.
create or replace function relevo.enqueue(event jsonb)
  returns table (event_id bigint, created boolean, same_content boolean, unknown_installations uuid[])
  language sql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$ select * from relevo.enqueue_many(jsonb_build_array(event)) $$;

revoke all on function relevo.enqueue from public;

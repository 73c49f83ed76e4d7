-- Ends an event: nothing of it is sent any more. Returns false if there is none, or it ended or was finished before.
create or replace function relevo.cancel(event_id bigint, reason text default null) returns boolean
  language sql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$ select case when relevo.is_finished(event_id) then false else relevo.end_event(event_id, 'cancelled', reason) end $$;

revoke all on function relevo.cancel from public;

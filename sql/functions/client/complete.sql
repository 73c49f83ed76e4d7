-- Ends an event that was handled elsewhere; what is left of it is not sent. Returns false if there is none, or it ended before.
create or replace function relevo.complete(event_id bigint, reason text default null) returns boolean
  language sql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$ select relevo.end_event(event_id, 'completed', reason) $$;

revoke all on function relevo.complete from public;

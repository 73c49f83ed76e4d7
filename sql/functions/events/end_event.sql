-- Ends an event before it is through: nothing of it is sent any more. It writes the event's row only; workers end its deliveries.
create or replace function relevo.end_event(id_of_event bigint, ending text, reason text) returns boolean
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  update relevo.notification_events
     set state = ending, ended_at = now(), end_reason = left(nullif(btrim(reason), ''), 300), updated_at = now()
   where id = id_of_event and ended_at is null;
  if not found then
    return false;
  end if;
  perform relevo.wake('fanout');
  return true;
end
$$;

revoke all on function relevo.end_event from public;

-- Deletes up to so many rows of what is left of a deleted event, which the caller has locked; returns how many, at least 1. Of a month on its way
-- to the archive nothing is deleted.
create or replace function relevo.delete_leftovers(of_event bigint, most int) returns int
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  gone relevo.deleted_events;
  done record;
begin
  select d.* into gone from relevo.deleted_events d where d.event_id = of_event;
  if cardinality(relevo.hold_open(array[gone.event_day])) = 0 then
    delete from relevo.deleted_events d where d.event_id = gone.event_id;
    return 1;
  end if;
  select * into done from relevo.delete_deliveries(gone.event_id, gone.event_day, gone.deleted_to, most);
  if done.finished then
    delete from relevo.deleted_events d where d.event_id = gone.event_id;
  else
    update relevo.deleted_events d set deleted_to = done.last_phone where d.event_id = gone.event_id;
  end if;
  return greatest(done.deleted, 1);
end
$$;

revoke all on function relevo.delete_leftovers from public;

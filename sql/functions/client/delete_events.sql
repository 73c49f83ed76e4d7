-- Deletes events and as many of their deliveries as is quickly done; the reaper deletes the rest.
create or replace function relevo.delete_events(event_ids bigint[]) returns integer
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  gone relevo.notification_events;
  done record;
  open_days date[];
  most int := 5000;
  deleted int := 0;
begin
  -- of a month that is sealed nothing is deleted: it is in the archive already
  open_days := relevo.hold_open(array(select distinct e.event_day from relevo.notification_events e
                                       where e.id = any (event_ids) and e.event_day is not null));
  for gone in select e.* from relevo.notification_events e
               where e.id = any (event_ids) and (e.event_day is null or e.event_day = any (open_days))
               order by e.id for update loop -- in the order of all who write the same
    -- a chunk that it shares with others' events stays as it is: locked here, it would keep their pushes waiting until the caller commits
    delete from relevo.notification_events e where e.id = gone.id;
    deleted := deleted + 1;
    continue when gone.event_day is null; -- never fanned out
    select * into done from relevo.delete_deliveries(gone.id, gone.event_day, null, most);
    most := greatest(most - done.deleted, 0);
    if not done.finished then
      insert into relevo.deleted_events (event_id, event_day, deleted_to) values (gone.id, gone.event_day, done.last_phone);
    end if;
  end loop;
  return deleted;
end
$$;

revoke all on function relevo.delete_events from public;

-- Deletes up to so many of an event's deliveries, and their failed attempts.
create or replace function relevo.delete_deliveries(id_of_event bigint, of_day date, from_phone uuid, most int,
                                                out deleted int, out last_phone uuid, out finished boolean)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set plan_cache_mode = force_generic_plan
as $$
declare
  keys bigint[];
  rows int;
begin
  delete from relevo.due_chunks q
   where q.id = any (array(select n.id from relevo.due_chunks n where n.event_id = id_of_event order by n.id limit least(most, 1000)));
  get diagnostics deleted = row_count;
  finished := deleted < least(most, 1000);
  select coalesce(array_agg(n.id), '{}'), coalesce((array_agg(n.installation_id order by n.installation_id desc))[1], from_phone)
    into keys, last_phone
    from (select d.id, d.installation_id from relevo.notification_deliveries d
           where d.event_day = of_day and d.notification_event_id = id_of_event
             and d.installation_id >= coalesce(from_phone, '00000000-0000-0000-0000-000000000000')
           order by d.installation_id limit most) n;
  delete from relevo.dead_letters l where l.event_day = of_day and l.delivery_id = any (keys);
  get diagnostics rows = row_count;
  deleted := deleted + rows;
  -- locked in the order of every writer, so that a settle under way and this do not wait for each other
  perform from relevo.notification_deliveries d where d.event_day = of_day and d.id = any (keys) order by d.event_day, d.id for update;
  delete from relevo.dead_letters l where l.event_day = of_day and l.delivery_id = any (keys); -- one that such a settle wrote
  delete from relevo.failed_attempts f where f.event_day = of_day and f.delivery_id = any (keys);
  delete from relevo.notification_deliveries d where d.event_day = of_day and d.id = any (keys);
  get diagnostics rows = row_count;
  deleted := deleted + rows;
  finished := finished and cardinality(keys) < most;
  if finished then
    -- the changes first: a reaper that is folding them is waited for, and its sums go next
    delete from relevo.event_progress_deltas p where p.event_id = id_of_event;
    delete from relevo.event_progress p where p.event_id = id_of_event;
    delete from relevo.event_reactions r where r.event_id = id_of_event;
    delete from relevo.silent_pushes s where s.event_id = id_of_event;
  end if;
end
$$;

revoke all on function relevo.delete_deliveries from public;

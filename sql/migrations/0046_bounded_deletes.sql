-- needs relevo 0.2.0
-- Deleting an event took as long as it had deliveries, in one statement and the app's own transaction. Now it deletes so many at once, and a
-- reaper the rest, batch by batch. What is sent in between finds its event gone, as before.

create table relevo.deleted_events (
  event_id bigint primary key,
  event_day date not null,
  deleted_to uuid,
  deleted_at timestamptz not null default now()
);

comment on table relevo.deleted_events is 'Events that were deleted and of whose deliveries some are left: a reaper deletes them.';
comment on column relevo.deleted_events.deleted_to is 'Up to this installation its deliveries are gone: what was deleted is not walked over again.';

-- Deletes so many of an event's deliveries, from an installation on, with their dead letters, and so many chunks; once nothing is left, its
-- counts. Tells how many rows went, to which installation, and if that was all.
create function relevo.delete_some_1(id_of_event bigint, of_day date, from_phone uuid, most int,
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
  delete from relevo.notification_deliveries d where d.event_day = of_day and d.id = any (keys);
  get diagnostics rows = row_count;
  deleted := deleted + rows;
  finished := finished and cardinality(keys) < most;
  if finished then
    -- the changes first: a reaper that is folding them is waited for, and its sums go next
    delete from relevo.event_progress_deltas p where p.event_id = id_of_event;
    delete from relevo.event_progress p where p.event_id = id_of_event;
  end if;
end
$$;

-- Deletes events with everything that came of them: up to 5,000 deliveries at once, the rest by a reaper. What a claim or an awaited receipt
-- still names is found gone by its holder, or its event is.
create or replace function relevo.delete_events(event_ids bigint[]) returns integer language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  gone relevo.notification_events;
  done record;
  most int := 5000;
  deleted int := 0;
begin
  for gone in delete from relevo.notification_events where id = any (event_ids) returning * loop
    deleted := deleted + 1;
    continue when gone.event_day is null; -- never fanned out
    select * into done from relevo.delete_some_1(gone.id, gone.event_day, null, most);
    most := greatest(most - done.deleted, 0);
    if not done.finished then
      insert into relevo.deleted_events (event_id, event_day, deleted_to) values (gone.id, gone.event_day, done.last_phone);
    end if;
  end loop;
  return deleted;
end
$$;

-- Deletes so much of what is left of one deleted event, passing by those that another reaper is at; tells how many rows, 0 if there is none.
-- Of a month on its way to the archive nothing is deleted any more.
create function relevo.delete_leftovers_1(most int) returns int
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  gone relevo.deleted_events;
  done record;
begin
  select d.* into gone from relevo.deleted_events d order by d.event_id limit 1 for update skip locked;
  if not found then
    return 0;
  end if;
  if cardinality(relevo.hold_open(array[gone.event_day])) = 0 then
    delete from relevo.deleted_events d where d.event_id = gone.event_id;
    return 1;
  end if;
  select * into done from relevo.delete_some_1(gone.event_id, gone.event_day, gone.deleted_to, most);
  if done.finished then
    delete from relevo.deleted_events d where d.event_id = gone.event_id;
  else
    update relevo.deleted_events d set deleted_to = done.last_phone where d.event_id = gone.event_id;
  end if;
  return greatest(done.deleted, 1);
end
$$;

-- Tells whether something of a month is still to be written: by what stands in a queue, a claim, an awaited receipt or is left of a deleted event.
create or replace function relevo.is_open(of_entity text, of_month date) returns boolean language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp set enable_seqscan = off
as $$
declare
  next_month date := (of_month + interval '1 month')::date;
  answer boolean;
begin
  if of_entity = 'notification_deliveries' then
    return exists (select from relevo.due_chunks q where q.event_day >= of_month and q.event_day < next_month)
        or exists (select from relevo.awaited_receipts r cross join unnest(r.days) as d(day) where d.day >= of_month and d.day < next_month)
        or exists (select from relevo.claims c cross join unnest(c.days) as d(day) where d.day >= of_month and d.day < next_month)
        or exists (select from relevo.deleted_events d where d.event_day >= of_month and d.event_day < next_month);
  end if;
  execute format($sql$select exists (select from relevo.claims c join relevo.%I r on r.claim_token = c.token and r.answered_at is null)$sql$,
                 of_entity || to_char(of_month, '_YYYY_MM')) into answer;
  return answer;
end
$$;

revoke all on function relevo.delete_some_1(bigint, date, uuid, int), relevo.delete_leftovers_1(int) from public;

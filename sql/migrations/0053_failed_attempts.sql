-- needs relevo 0.2.0
-- A delivery keeps its last error alone. Each attempt that did not get through is told of here, up to twenty of a delivery, beside what dispatch,
-- receipts and reaper write anyway; a push that is sent and confirmed writes nothing. What a worker of 0.2.0 settles is not told of.

create table relevo.failed_attempts (
  event_day     date not null,
  delivery_id   bigint not null,
  n             smallint not null check (n between 1 and 20),
  at            timestamptz not null,
  attempt       smallint not null check (attempt between 0 and 100),
  found_by      text not null check (found_by in ('dispatch', 'receipt', 'reaper', 'redrive')),
  became        text not null check (became in ('pending', 'retryable', 'invalid', 'failed', 'expired', 'unknown')),
  error_code    text check (length(error_code) between 1 and 100),
  error_message text check (length(error_message) between 1 and 500),
  request_id    uuid,
  primary key (event_day, delivery_id, n)
);

comment on table relevo.failed_attempts is 'What went wrong with a delivery, attempt by attempt, the first twenty: rows are added by whatever writes the delivery, and go with it.';
comment on column relevo.failed_attempts.attempt is 'The delivery''s count of attempts then; a redrive begins anew.';
comment on column relevo.failed_attempts.found_by is 'Who found it: a redrive notes a death that nobody had.';
comment on column relevo.failed_attempts.became is 'What the delivery became by it.';
comment on column relevo.failed_attempts.request_id is 'The request it was in, if that is known.';

-- When a cycle was paused and resumed, and by whom, stands in the record of what operators did; this finds it by cycle and time.
create index audit_log_pauses on relevo.audit_log ((target ->> 'cycle'), at) where action in ('pause', 'resume');

-- Deletes so many of an event's deliveries as before, and what went wrong with them.
create or replace function relevo.delete_some_1(id_of_event bigint, of_day date, from_phone uuid, most int,
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
  end if;
end
$$;

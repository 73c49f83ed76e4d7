-- Puts open deliveries into the queue: those of one event, with the same past, that fall due together, go into one chunk. The caller has locked
-- them and taken them out of where they stood.
create or replace function relevo.queue_deliveries(of_days date[], of_ids bigint[], due timestamptz[]) returns int language sql volatile
  set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
  with open as materialized (
    select d.*, k.due_at,
           (row_number() over (partition by d.project, d.lane, k.due_at, d.event_day, d.notification_event_id, d.created_at, d.attempt_count,
                                            d.lapse_count, d.last_error_code is not null order by d.id) - 1)
             / case d.lapse_count when 0 then 100 when 1 then 10 else 1 end as piece -- what lapsed together comes back in tenths, down to one
      from unnest(of_days, of_ids, due) as k(event_day, id, due_at)
      cross join lateral (select * from relevo.notification_deliveries d where d.event_day = k.event_day and d.id = k.id offset 0) d
     where d.status in ('pending', 'retryable')
  ), made as (
    insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                                   ids, installations, inboxes)
    select o.project, o.lane, o.due_at, o.event_day, o.notification_event_id, min(o.event_type), o.created_at, o.attempt_count, o.lapse_count,
           o.last_error_code is not null, array_agg(o.id order by o.id), array_agg(o.installation_id order by o.id),
           case when count(o.inbox_id) > 0 then array_agg(o.inbox_id order by o.id) end
      from open o
     group by o.project, o.lane, o.due_at, o.event_day, o.notification_event_id, o.created_at, o.attempt_count, o.lapse_count,
              o.last_error_code is not null, o.piece
    returning cardinality(ids) as n
  )
  select coalesce(sum(m.n), 0)::int from made m
$$;

revoke all on function relevo.queue_deliveries from public;

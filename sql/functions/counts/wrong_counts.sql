-- Returns for some events how many deliveries of which status their counts lack, or have too many (less than 0). A statement that changes a delivery writes
-- its change of the counts in the same transaction, so that one snapshot sees both or neither.
create or replace function relevo.wrong_counts(events bigint[]) returns table (event_id bigint, status text, missing bigint)
  language sql stable
as $$
  select c.event_id, c.status, sum(c.n)::bigint
    from (select e.id as event_id, d.status, d.n
            from unnest(events) as u(id)
            join relevo.notification_events e on e.id = u.id
            cross join lateral (select d.status, count(*) as n from relevo.notification_deliveries d
                                 where d.event_day = e.event_day and d.notification_event_id = e.id group by d.status) d
          union all
          select p.event_id, p.status, -p.deliveries from relevo.event_progress p where p.event_id = any (events)
          union all
          select d.event_id, d.status, -d.deliveries from relevo.event_progress_deltas d where d.event_id = any (events)) c
   group by c.event_id, c.status
  having sum(c.n) <> 0
$$;

revoke all on function relevo.wrong_counts from public;

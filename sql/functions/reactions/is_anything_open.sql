-- Returns whether an event has pushes that are still to be sent, or tried again, without counting deliveries.
create or replace function relevo.is_anything_open(of_event bigint) returns boolean
  language sql stable
as $$
  select exists (
    select from (select p.status, p.deliveries from relevo.event_progress p where p.event_id = of_event
                 union all
                 select d.status, d.deliveries from relevo.event_progress_deltas d where d.event_id = of_event) p
     where p.status in ('pending', 'retryable')
     group by p.status having sum(p.deliveries) > 0)
$$;

revoke all on function relevo.is_anything_open from public;

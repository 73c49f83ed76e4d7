-- Moves deliveries of events from one status to another in the counts, one each if no numbers are given; what keeps its status changes nothing.
create or replace function relevo.move_counts(events bigint[], formers text[], statuses text[], numbers int[] default '{}') returns void
  language plpgsql
as $$
begin
  insert into relevo.event_progress_deltas (event_id, status, deliveries)
  select u.event_id, s.status, sum(s.n)::int
    from unnest(events, formers, statuses, numbers) as u(event_id, former, status, n)
    cross join lateral (values (u.former, -coalesce(u.n, 1)), (u.status, coalesce(u.n, 1))) as s(status, n)
   group by u.event_id, s.status
  having sum(s.n) <> 0;
end
$$;

revoke all on function relevo.move_counts from public;

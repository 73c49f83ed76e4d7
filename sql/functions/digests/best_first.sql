-- Returns events that are still worth telling, the best first, each once.
create or replace function relevo.best_first(events bigint[], at timestamptz) returns bigint[]
  language sql stable
as $$
  select coalesce(array_agg(e.id order by relevo.event_score(e.e) desc, (e.e).fanout_finished_at desc, e.id desc), '{}')
    from (select distinct u.id from unnest(events) as u(id)) u
    cross join lateral (select e.id, e from relevo.notification_events e
                         where e.id = u.id and e.ended_at is null and (e.deadline_at > at) is not false offset 0) e
$$;

revoke all on function relevo.best_first from public;

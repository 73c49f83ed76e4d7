-- Returns the events of a project that lie between two windows and are still worth telling, the best first: by their score, then the latest.
create or replace function relevo.digest_window(of_project text, after_number bigint, upto_number bigint, at timestamptz)
  returns table (place int, number bigint, e relevo.notification_events, rule text)
  language sql stable
as $$
  select row_number() over (order by relevo.event_score(n.e) desc, (n.e).fanout_finished_at desc, n.id desc)::int,
         d.number, n.e, relevo.category_rule((n.e).category)
    from relevo.digest_events d
    cross join lateral (select n.id, n as e from relevo.notification_events n where n.id = d.event_id offset 0) n
   where d.number > after_number and d.number <= upto_number and (n.e).ended_at is null and ((n.e).deadline_at > at) is not false
     and ((n.e).project is null or (n.e).project = of_project)
$$;

revoke all on function relevo.digest_window from public;

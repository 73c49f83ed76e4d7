-- Returns the projects that have an event of a lane waiting, due or not, in their turn: from the one after the given project on, round to that
-- one. It goes along the names, one by one as the caller asks for more. Events whose turn is before `since` do not count.
create or replace function relevo.waiting_projects(of_lane text, after_project text, since timestamptz) returns table (project text)
  language sql stable
as $$
  with recursive later as (
    select (select coalesce(n.project, '') from relevo.notification_events n
             where n.state in ('waiting', 'fanning') and n.lane = of_lane and coalesce(n.project, '') > after_project
               and coalesce(n.turn_at, n.scheduled_at) >= coalesce(since, '-infinity')
             order by coalesce(n.project, '') limit 1) as project
    union all
    select (select coalesce(n.project, '') from relevo.notification_events n
             where n.state in ('waiting', 'fanning') and n.lane = of_lane and coalesce(n.project, '') > l.project
               and coalesce(n.turn_at, n.scheduled_at) >= coalesce(since, '-infinity')
             order by coalesce(n.project, '') limit 1)
      from later l where l.project is not null
  ), again as ( -- from the first one on
    select (select coalesce(n.project, '') from relevo.notification_events n
             where n.state in ('waiting', 'fanning') and n.lane = of_lane
               and coalesce(n.turn_at, n.scheduled_at) >= coalesce(since, '-infinity')
             order by coalesce(n.project, '') limit 1) as project
    union all
    select (select coalesce(n.project, '') from relevo.notification_events n
             where n.state in ('waiting', 'fanning') and n.lane = of_lane and coalesce(n.project, '') > a.project
               and coalesce(n.turn_at, n.scheduled_at) >= coalesce(since, '-infinity')
             order by coalesce(n.project, '') limit 1)
      from again a where a.project < after_project
  )
  select l.project from later l where l.project is not null
  union all
  select a.project from again a where a.project <= after_project
$$;

revoke all on function relevo.waiting_projects from public;

-- Locks the event whose turn it is in a lane: the first of the next project in the round that has one due. A slice puts its event ten seconds
-- back (fan_out_slice): whatever falls due meanwhile goes first. Where the next projects have nothing but what is scheduled for later, the
-- projects come from the events that are due, unless these are many. No event that waits has its turn before `since`, or is scheduled before
-- `due_since`: while somebody holds a snapshot, the rows of all that fanned out meanwhile still stand there.
create or replace function relevo.next_event(of_lane text, after_project text, given_up bigint[], at timestamptz, since timestamptz, due_since timestamptz)
  returns relevo.notification_events
  language plpgsql volatile
as $$
declare
  e relevo.notification_events;
  last_one text := coalesce(after_project, '');
  whose text;
  due_events int;
  due_projects text[];
begin
  for whose in select p.project from relevo.waiting_projects(of_lane, last_one, since) p limit 2 loop
    e := relevo.first_event_of(whose, of_lane, given_up, at, since);
    if e.id is not null then
      return e;
    end if;
  end loop;
  if whose is null then
    return null;
  end if;
  select count(*), array_agg(distinct d.project) into due_events, due_projects
    from (select coalesce(n.project, '') as project from relevo.notification_events n
           where n.state in ('waiting', 'fanning') and n.lane = of_lane and n.scheduled_at <= at
             and n.scheduled_at >= coalesce(due_since, '-infinity')
           order by n.lane desc, n.scheduled_at, n.id limit 100) d;
  for whose in
    (select u.project from unnest(due_projects) as u(project) where due_events < 100 order by u.project <= last_one, u.project)
    union all
    select p.project from relevo.waiting_projects(of_lane, last_one, since) p
     where due_events >= 100 and exists (select from relevo.notification_events n
                                          where n.state in ('waiting', 'fanning') and n.lane = of_lane and coalesce(n.project, '') = p.project
                                            and coalesce(n.turn_at, n.scheduled_at) >= coalesce(since, '-infinity')
                                            and coalesce(n.turn_at, n.scheduled_at) <= at + interval '10 seconds' and n.scheduled_at <= at)
  loop
    e := relevo.first_event_of(whose, of_lane, given_up, at, since);
    if e.id is not null then
      return e;
    end if;
  end loop;
  return null;
end
$$;

revoke all on function relevo.next_event from public;

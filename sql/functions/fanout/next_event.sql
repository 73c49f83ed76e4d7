-- Locks the event whose turn it is in a lane: the first of the next project in the round, skipping those that another replica holds, those that
-- wait for a retry or for their texts, and those given up. A slice puts its event ten seconds back (fan_out_slice): whatever falls due meanwhile goes first.
create or replace function relevo.next_event(of_lane text, after_project text, given_up bigint[], at timestamptz) returns relevo.notification_events
  language plpgsql volatile
as $$
declare
  e relevo.notification_events;
  whose text := coalesce(after_project, '');
  last_of_round text := whose;
  next_one text;
  wrapped boolean := false;
begin
  loop
    next_one := coalesce((select coalesce(n.project, '') from relevo.notification_events n
                           where n.state in ('waiting', 'fanning') and n.lane = of_lane and coalesce(n.project, '') > whose
                           order by coalesce(n.project, '') limit 1),
                         (select coalesce(n.project, '') from relevo.notification_events n
                           where n.state in ('waiting', 'fanning') and n.lane = of_lane
                           order by coalesce(n.project, '') limit 1));
    exit when next_one is null or (wrapped and next_one <= whose);
    wrapped := wrapped or next_one <= whose;
    exit when wrapped and next_one > last_of_round;
    whose := next_one;
    select * into e from relevo.notification_events n
     where n.state in ('waiting', 'fanning') and n.lane = of_lane and coalesce(n.project, '') = whose
       and coalesce(n.turn_at, n.scheduled_at) <= at + interval '10 seconds' and n.scheduled_at <= at
       and (n.fanout_retry_at is null or n.fanout_retry_at <= at) and n.id <> all (given_up) and (n.arguments is null or n.texts is not null)
     order by coalesce(n.turn_at, n.scheduled_at), n.id
     limit 1
       for update skip locked;
    if found then
      return e;
    end if;
    -- many projects may have nothing but what is scheduled for later
    exit when not exists (select from relevo.notification_events n
                           where n.state in ('waiting', 'fanning') and n.lane = of_lane and n.scheduled_at <= at);
  end loop;
  return null;
end
$$;

revoke all on function relevo.next_event from public;

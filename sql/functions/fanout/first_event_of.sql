-- Locks the first event of a project whose turn it is in a lane, skipping those that another replica holds, those that wait for a retry or for
-- their texts, and those given up. It begins at the turn `since`.
create or replace function relevo.first_event_of(of_project text, of_lane text, given_up bigint[], at timestamptz, since timestamptz) returns relevo.notification_events
  language plpgsql volatile
as $$
declare
  e relevo.notification_events;
begin
  select * into e from relevo.notification_events n
   where n.state in ('waiting', 'fanning') and n.lane = of_lane and coalesce(n.project, '') = of_project
     and coalesce(n.turn_at, n.scheduled_at) >= coalesce(since, '-infinity')
     and coalesce(n.turn_at, n.scheduled_at) <= at + interval '10 seconds' and n.scheduled_at <= at
     and (n.fanout_retry_at is null or n.fanout_retry_at <= at) and n.id <> all (given_up) and (n.arguments is null or n.texts is not null)
   order by coalesce(n.turn_at, n.scheduled_at), n.id
   limit 1
     for update skip locked;
  return e;
end
$$;

revoke all on function relevo.first_event_of from public;

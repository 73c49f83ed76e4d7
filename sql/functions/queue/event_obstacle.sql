-- Returns what keeps an event from being sent, which may be handled elsewhere by now; null if nothing does. It is inlined.
create or replace function relevo.event_obstacle(event_id bigint, ended_at timestamptz, deadline_at timestamptz, at timestamptz, handled boolean) returns text
  language sql immutable parallel safe
  return case when event_id is null then 'event_gone'
              when ended_at is not null then 'event_ended'
              when handled then 'handled_elsewhere'
              when deadline_at <= at then 'deadline_passed' end;

revoke all on function relevo.event_obstacle from public;

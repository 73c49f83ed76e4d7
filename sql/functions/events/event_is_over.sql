-- Returns whether nothing more can happen to an event.
create or replace function relevo.event_is_over(e relevo.notification_events) returns boolean language sql immutable
  return e.state = 'fanned' or (e.ended_at is not null and (e.swept_at is not null or e.event_day is null));

revoke all on function relevo.event_is_over from public;

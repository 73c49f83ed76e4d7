-- Returns the month to which an event belongs once it is over: that of its fan-out, or, without one, of its end.
create or replace function relevo.event_month(e relevo.notification_events) returns date language sql immutable
  return date_trunc('month', coalesce(e.event_day, (e.ended_at at time zone 'UTC')::date)::timestamp)::date;

revoke all on function relevo.event_month from public;

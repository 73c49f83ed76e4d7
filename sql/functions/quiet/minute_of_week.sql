-- Returns which minute of the week a wall clock shows: 0 is Monday, 00:00. It is inlined.
create or replace function relevo.minute_of_week(local timestamp) returns int language sql immutable parallel safe
  return ((floor(extract(epoch from local) / 60)::bigint + 4320) % 10080)::int; -- the first of 1970 was a Thursday

revoke all on function relevo.minute_of_week from public;

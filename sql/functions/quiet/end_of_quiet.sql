-- Returns when quiet hours that are under way end: the first instant at which the wall clock of the zone shows a minute outside of them; null if
-- it does so already. Hours are added only between instants of the same offset from UTC; where clocks are changed in between, it goes on from there.
create or replace function relevo.end_of_quiet(windows int4multirange, zone text, at timestamptz) returns timestamptz
  language plpgsql immutable
as $$
declare
  until timestamptz := at;
  local timestamp := at at time zone zone;
  ahead timestamptz;
begin
  while windows @> relevo.minute_of_week(local) loop
    ahead := until + (date_trunc('week', local) - local)
             + (select upper(w) * interval '1 minute' from unnest(windows) as w where w @> relevo.minute_of_week(local));
    if (ahead at time zone zone) - (ahead at time zone 'UTC') <> local - (until at time zone 'UTC') then
      ahead := relevo.clock_change(zone, until, ahead);
    end if;
    until := ahead;
    local := until at time zone zone;
  end loop;
  return nullif(until, at);
end
$$;

revoke all on function relevo.end_of_quiet from public;

-- Returns when the clocks of a zone were changed between two instants of which the first has another offset from UTC than the second.
create or replace function relevo.clock_change(zone text, before timestamptz, after timestamptz) returns timestamptz
  language plpgsql immutable
as $$
declare
  early bigint := floor(extract(epoch from before));
  late bigint := ceil(extract(epoch from after));
  middle bigint;
  was interval := (before at time zone zone) - (before at time zone 'UTC');
begin
  while late - early > 1 loop
    middle := (early + late) / 2;
    if (to_timestamp(middle) at time zone zone) - (to_timestamp(middle) at time zone 'UTC') = was then
      early := middle;
    else
      late := middle;
    end if;
  end loop;
  return to_timestamp(late);
end
$$;

revoke all on function relevo.clock_change from public;

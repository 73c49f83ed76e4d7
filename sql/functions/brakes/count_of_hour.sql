-- Returns how many events fell due within the last hour: those of this clock hour, and the share of the one before. Not by numeric, with which
-- one count took 1 us.
create or replace function relevo.count_of_hour(hour_at timestamptz, in_hour int, hour_before int, at timestamptz) returns float8
  language sql immutable
  return case when at - hour_at < interval '1 hour' then
                in_hour + hour_before * (1 - greatest(0, date_part('epoch', at - hour_at) / 3600))
              when at - hour_at < interval '2 hours' then in_hour * (2 - date_part('epoch', at - hour_at) / 3600)
              else 0 end;

revoke all on function relevo.count_of_hour from public;

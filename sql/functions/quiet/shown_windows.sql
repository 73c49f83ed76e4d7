-- Returns minutes of the local week as windows such as ["22:00-07:00", "sat,sun 07:00-10:00"]; those that go on in the next week are joined.
create or replace function relevo.shown_windows(windows int4multirange) returns jsonb
  language sql immutable
as $$
  with piece as (
    select r.starts + n as starts, least(r.lasts - n, 1440) as lasts
      from (select lower(w) as starts, upper(w) - lower(w) + case when upper(w) = 10080 and windows @> 0
                                         then (select upper(f) from unnest(windows) as f where lower(f) = 0) else 0 end as lasts
              from unnest(windows) as w where not (lower(w) = 0 and windows @> 10079)) r
      cross join lateral generate_series(0, r.lasts - 1, 1440) as n
  ), daily as (
    select p.starts % 1440 as starts, p.lasts, array_agg(distinct p.starts / 1440 % 7 order by p.starts / 1440 % 7) as days from piece p group by 1, 2
  )
  select coalesce(jsonb_agg(case when cardinality(d.days) = 7 then ''
                                 else (select string_agg((array['mon', 'tue', 'wed', 'thu', 'fri', 'sat', 'sun'])[n + 1], ',' order by n)
                                         from unnest(d.days) as n) || ' ' end
                            || to_char(d.starts * interval '1 minute', 'HH24:MI') || '-'
                            || case when d.starts + d.lasts = 1440 then '24:00' else to_char((d.starts + d.lasts) % 1440 * interval '1 minute', 'HH24:MI') end
                            order by d.days, d.starts), '[]')
    from daily d
$$;

revoke all on function relevo.shown_windows from public;

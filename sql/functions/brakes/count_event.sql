-- Counts one event of a known stream for some phones, as count_events does and in the same order, and returns the count of the phone with the
-- most; the nil UUID stands for all phones. Where all were counted before, an update by key takes half as long as an insert that finds each of
-- them there.
create or replace function relevo.count_event(of_stream bigint, of_release int, was_held boolean, due_at timestamptz, phones uuid[], out most float8)
  language plpgsql volatile
as $$
#variable_conflict use_column
declare
  hour_of timestamptz := date_bin('1 hour', due_at, 'epoch');
  day_of date := (due_at at time zone 'UTC')::date;
  once int := (not was_held)::int;
begin
  if cardinality(phones) > 10 and cardinality(phones) = (
       select count(*) from relevo.event_counts c where c.stream_id = of_stream and c.installation_id = any (phones)) then
    with written as (
      update relevo.event_counts c -- by the primary key, and so in its order: no deadlock
         set hour_at = greatest(c.hour_at, hour_of), day = greatest(c.day, day_of), releases = of_release,
             in_hour = once + case when c.releases = of_release and c.hour_at >= hour_of then c.in_hour else 0 end,
             hour_before = case when c.releases <> of_release then 0
                                when c.hour_at >= hour_of then c.hour_before
                                when c.hour_at = hour_of - interval '1 hour' then c.in_hour
                                else 0 end,
             passed_today = 1 + case when c.day >= day_of then c.passed_today else 0 end,
             busiest_day = case when c.day >= day_of then c.busiest_day
                                else greatest(c.passed_today, c.busiest_day * 0.95 ^ least(1000, day_of - c.day))::int end
       where c.stream_id = of_stream and c.installation_id = any (phones)
      returning case when c.installation_id <> '00000000-0000-0000-0000-000000000000' then
                  relevo.count_of_hour(c.hour_at, c.in_hour, c.hour_before, due_at) end as in_hour
    )
    select max(w.in_hour) into most from written w;
    return;
  end if;
  with written as (
    insert into relevo.event_counts as c (stream_id, installation_id, hour_at, day, in_hour, hour_before, passed_today, busiest_day, releases)
    select of_stream, u.phone, hour_of, day_of, once, 0, 1, 0, of_release
      from unnest(phones) as u(phone)
     order by u.phone -- in one order for all: no deadlock
    on conflict (stream_id, installation_id) do update
       set hour_at = greatest(c.hour_at, hour_of), day = greatest(c.day, day_of), releases = of_release,
           in_hour = once + case when c.releases = of_release and c.hour_at >= hour_of then c.in_hour else 0 end,
           hour_before = case when c.releases <> of_release then 0
                              when c.hour_at >= hour_of then c.hour_before
                              when c.hour_at = hour_of - interval '1 hour' then c.in_hour
                              else 0 end,
           passed_today = 1 + case when c.day >= day_of then c.passed_today else 0 end,
           busiest_day = case when c.day >= day_of then c.busiest_day
                              else greatest(c.passed_today, c.busiest_day * 0.95 ^ least(1000, day_of - c.day))::int end
    returning case when c.installation_id <> '00000000-0000-0000-0000-000000000000' then
                  relevo.count_of_hour(c.hour_at, c.in_hour, c.hour_before, due_at) end as in_hour
  )
  select max(w.in_hour) into most from written w;
end
$$;

revoke all on function relevo.count_event from public;

-- Returns of the phones of a slice until when each has to be left in peace, the others now; null if that is all of them. Of all phones with
-- the same quiet hours the end is found once.
create or replace function relevo.quiet_dues(e relevo.notification_events, phones uuid[], at timestamptz) returns timestamptz[]
  language plpgsql stable
as $$
declare
  t relevo.event_types;
  rule text;
  any_default boolean := exists (select from relevo.quiet_defaults);
  dues timestamptz[];
begin
  select n.* into t from relevo.event_types n where n.event_type = e.event_type;
  rule := relevo.quiet_rule(e, t.quiet);
  if rule <> 'wait' then
    return null;
  end if;
  with phone as materialized (
    select u.place, i.quiet, i.owner_quiet, i.timezone, i.project
      from unnest(phones) with ordinality as u(id, place)
      cross join lateral (select i.quiet, i.owner_quiet, i.timezone, i.project from relevo.device_installations i
                           where i.installation_id = u.id offset 0) i
     where any_default or i.quiet is not null or i.owner_quiet is not null
  ), kind as materialized (
    select k.*, v.due_at
      from (select array_agg(p.place) as places, p.quiet, p.owner_quiet, p.timezone, case when any_default then p.project end as project
              from phone p group by 2, 3, 4, 5) k
      cross join lateral relevo.quiet_of(k.quiet, k.owner_quiet, k.project, k.timezone) q
      cross join lateral relevo.quiet_verdict(rule, t.quiet_max_wait_s, t.quiet_deadline, e.scheduled_at, e.deadline_at,
                                              relevo.end_of_quiet(q.windows, q.zone, at), at) v
     where v.verdict = 'wait'
  )
  select array_agg(coalesce(w.due_at, at) order by n) into dues
    from generate_series(1, cardinality(phones)) as n
    left join (select u.place, k.due_at from kind k cross join unnest(k.places) as u(place)) w on w.place = n
  having count(w.due_at) > 0;
  return dues;
end
$$;

revoke all on function relevo.quiet_dues from public;

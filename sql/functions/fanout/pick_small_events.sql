-- Locks small personal events that are fanned out together, up to so many: those of one project in the order of the line, then those of others.
-- Those that are gathered in batches, or for phones with some attributes alone, are left out. None is scheduled before `since`.
create or replace function relevo.pick_small_events(of_lane text, of_project text, due_hour timestamptz, few int, most int, left_out bigint[], at timestamptz,
                                                    since timestamptz)
  returns table (id bigint, is_late boolean, named int)
  language plpgsql volatile
as $$
#variable_conflict use_column
declare
  found_before int;
  any_batches boolean := exists (select from relevo.event_types t where t.batch_window_s is not null);
begin
  return query
  select e.id, (e.deadline_at <= at) is true, a.named
    from relevo.notification_events e
    cross join lateral (select count(*)::int as named
                          from (select 1 from relevo.event_audience a where a.event_id = e.id
                                union all
                                select 1 from relevo.event_owners o
                                  cross join lateral (select 1 from relevo.device_installations i where i.owner = o.owner limit few + 1) i
                                 where o.event_id = e.id
                                 limit few + 1) a) a
   where e.state in ('waiting', 'fanning') and e.lane = of_lane and coalesce(e.project, '') = coalesce(of_project, '')
     and coalesce(e.turn_at, e.scheduled_at) >= coalesce(since, '-infinity') and coalesce(e.turn_at, e.scheduled_at) <= at and coalesce(e.turn_at, e.scheduled_at) < due_hour + interval '1 hour'
     and e.scheduled_at <= at and e.audience = 'installations' and e.match_where is null and e.event_day is null and e.fanout_failures is null and a.named <= few
     and date_bin('1 hour', greatest(e.scheduled_at, e.created_at), 'epoch') = due_hour
     and e.id <> all (left_out) and (e.arguments is null or e.texts is not null) and not (any_batches and relevo.is_batched(e))
   order by coalesce(e.turn_at, e.scheduled_at), e.id
   limit most
     for update of e skip locked;
  get diagnostics found_before = row_count;
  if found_before < most then
    return query
    select e.id, (e.deadline_at <= at) is true, a.named
      from relevo.notification_events e
      cross join lateral (select count(*)::int as named
                            from (select 1 from relevo.event_audience a where a.event_id = e.id
                                  union all
                                  select 1 from relevo.event_owners o
                                    cross join lateral (select 1 from relevo.device_installations i where i.owner = o.owner limit few + 1) i
                                   where o.event_id = e.id
                                   limit few + 1) a) a
     where e.state in ('waiting', 'fanning') and e.lane = of_lane and coalesce(e.project, '') <> coalesce(of_project, '')
       and e.scheduled_at >= coalesce(since, '-infinity') and e.scheduled_at <= at and e.scheduled_at < due_hour + interval '1 hour'
       and (e.arguments is null or e.texts is not null)
       and e.audience = 'installations' and e.match_where is null and e.event_day is null and e.fanout_failures is null and a.named <= few
       and date_bin('1 hour', greatest(e.scheduled_at, e.created_at), 'epoch') = due_hour
       and e.id <> all (left_out) and not (any_batches and relevo.is_batched(e))
     order by e.lane desc, e.scheduled_at, e.id
     limit most - found_before
       for update of e skip locked;
  end if;
end
$$;

revoke all on function relevo.pick_small_events from public;

-- Fans out small personal events together, up to so many events and deliveries, in one go; those past their deadline end. Of watched ones each
-- phone is counted with its event. `created` is null if today's month is sealed: then nothing was made. `held` says how many are above a cap.
-- It earns 95 % of the row personal_fanout of `make bench ARGS="--only personal"`, run with it and with fan_out_slice for each event in turns.
create or replace function relevo.fan_out_small(of_lane text, of_project text, due_hour timestamptz, few int, most_events int, most int, left_out bigint[],
                                       watched boolean, given_at timestamptz, since timestamptz)
  returns table (fanned bigint[], late bigint[], created int, events bigint[], installations uuid[], counted uuid[], in_hour float8[],
                 busiest_day int[], held jsonb)
  language plpgsql volatile
as $$
#variable_conflict use_column
declare
  at timestamptz := relevo.now(given_at);
begin
  select coalesce(array_agg(p.id) filter (where not p.is_late), '{}'), coalesce(array_agg(p.id) filter (where p.is_late), '{}')
    into fanned, late
    from (select s.id, s.is_late, sum(s.named) over (rows unbounded preceding) as so_far
            from relevo.pick_small_events(of_lane, of_project, due_hour, few, most_events, left_out, at, since) s) p
   where p.so_far <= most;
  if late <> '{}' then
    perform relevo.expire_events(late, at);
  end if;
  created := 0;
  if fanned <> '{}' then
    created := null;
    select f.* into created, events, installations, held from relevo.fan_out_events(fanned, watched, given_at) f;
    if created > 0 and exists (select from relevo.quiet_profiles) then
      perform relevo.defer_quiet(fanned, at);
    end if;
    if created > 0 then
      perform relevo.wake('dispatch');
      if watched and events is not null then
        select c.* into counted, in_hour, busiest_day from relevo.count_events(events, installations, true) c;
      end if;
    end if;
  end if;
  return next;
end
$$;

revoke all on function relevo.fan_out_small from public;

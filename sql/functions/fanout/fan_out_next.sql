-- Locks the event whose turn it is to fan out (urgent first, then by project and by event; none while fan-out is paused) and fans it out. `how`
-- says what was done: `together` with other small personal events, or a `slice` of it; `sealed` if its month is; `picked` if nothing was made,
-- because the caller has to judge it first or wants nothing made at once. With `unseen`, where the caller commits before it reads, an error
-- undoes all that it would have had to judge. It begins at `since` and `due_since` (next_event).
create or replace function relevo.fan_out_next(after_project text, given_up bigint[], apart bigint[], aside bigint[], few int, most_events int, most int,
                                      brake boolean, enough int, at_once boolean, unseen boolean, given_at timestamptz, since timestamptz,
                                      due_since timestamptz)
  returns table (id bigint, project text, audience text, lane text, event_day date, too_late boolean, named int, due_hour timestamptz, how text,
                 fanned bigint[], late bigint[], events bigint[], installations uuid[],
                 is_last boolean, targets int, created int, projects text[], counted uuid[], in_hour float8[], busiest_day int[], held jsonb)
  language plpgsql volatile
as $$
#variable_conflict use_column
declare
  at timestamptz := relevo.now(given_at);
  e relevo.notification_events;
  watched boolean;
begin
  if exists (select from relevo.cycle_state s where s.cycle = 'fanout' and s.source = '' and s.paused_at is not null) then
    return;
  end if;
  e := relevo.next_event('urgent', after_project, given_up, at, since, due_since);
  if e.id is null then
    e := relevo.next_event('bulk', after_project, given_up, at, since, due_since);
  end if;
  if e.id is null then
    return;
  end if;
  id := e.id;
  project := coalesce(e.project, '');
  audience := e.audience;
  lane := e.lane;
  event_day := e.event_day;
  too_late := (e.deadline_at <= at) is true;
  due_hour := date_bin('1 hour', greatest(e.scheduled_at, e.created_at), 'epoch');
  how := 'picked';
  watched := brake and e.lane <> 'urgent' and e.event_day is null;
  if e.audience = 'installations' and e.event_day is null
     and (not at_once or exists (select from relevo.notification_events n
                                  where n.state in ('waiting', 'fanning') and n.lane = e.lane and n.scheduled_at >= coalesce(since, '-infinity')
                                    and n.scheduled_at <= at and n.id <> e.id)) then
    named := (select count(*)
                from (select 1 from relevo.event_audience a where a.event_id = e.id
                      union all
                      select 1 from relevo.event_owners o
                        cross join lateral (select 1 from relevo.device_installations i where i.owner = o.owner limit few + 1) i
                       where o.event_id = e.id
                       limit few + 1) a);
  end if;
  if at_once and named <= few and e.fanout_failures is null and e.id <> all (apart)
     and not relevo.is_batched(e) then -- what is gathered is made by itself
    how := 'together';
    select f.fanned, f.late, f.created, f.events, f.installations, f.counted, f.in_hour, f.busiest_day, f.held
      into fanned, late, created, events, installations, counted, in_hour, busiest_day, held
      from relevo.fan_out_small(
        of_lane => e.lane, of_project => e.project, due_hour => due_hour, few => few, most_events => most_events, most => most,
        left_out => given_up || apart, watched => watched, given_at => given_at, since => since) f;
    if (select max(c.n) from unnest(in_hour) as c(n)) <= enough then
      counted := null; -- that is too much for nobody
      in_hour := null;
      busiest_day := null;
      events := null;
      installations := null;
    end if;
  elsif at_once and not too_late then
    how := 'slice';
    select f.* into is_last, targets, created, projects, counted, in_hour, busiest_day, held
      from relevo.fan_out_slice(e, most, watched, false, e.id = any (aside), enough, given_at) f;
    how := case when not found then 'sealed' when is_last is null then 'picked' else 'slice' end;
  end if;
  if unseen and (counted is not null or (how = 'together' and created is null)) then
    raise exception using errcode = 'RLV00', message = format('event %s has to be looked at before it is committed', e.id);
  end if;
  return next;
end
$$;

revoke all on function relevo.fan_out_next from public;

-- needs relevo 0.2.0
-- One event's trouble, and one event's size, is its own: an event whose fan-out fails waits for its next try while the others go on, and slices
-- take turns, by event and by project.

alter table relevo.notification_events
  add column turn_at timestamptz,
  add column fanout_failures int,
  add column fanout_retry_at timestamptz,
  add column fanout_error text,
  add constraint fanout_error_is_short check (length(fanout_error) between 1 and 300) not valid;

comment on column relevo.notification_events.turn_at is 'Its place among those that fan out, once a slice was made or failed; before that it is when it is due.';
comment on column relevo.notification_events.fanout_failures is 'How often its fan-out has failed since its last slice; null: not once.';
comment on column relevo.notification_events.fanout_retry_at is 'When a fan-out that failed is tried again.';
comment on column relevo.notification_events.fanout_error is 'What was said when it failed last.';

-- Locks the event whose turn it is in a lane: the first of the next project in the round, passing by those another replica is at, those that
-- wait for their next try, and those given up. A slice puts its event ten seconds back (fan_out_slice_4): whoever falls due meanwhile goes first.
create function relevo.next_event_1(of_lane text, after_project text, given_up bigint[], at timestamptz) returns relevo.notification_events
  language plpgsql volatile
as $$
declare
  e relevo.notification_events;
  whose text := coalesce(after_project, '');
  last_of_round text := whose;
  next_one text;
  wrapped boolean := false;
begin
  loop
    next_one := coalesce((select coalesce(n.project, '') from relevo.notification_events n
                           where n.state in ('waiting', 'fanning') and n.lane = of_lane and coalesce(n.project, '') > whose
                           order by coalesce(n.project, '') limit 1),
                         (select coalesce(n.project, '') from relevo.notification_events n
                           where n.state in ('waiting', 'fanning') and n.lane = of_lane
                           order by coalesce(n.project, '') limit 1));
    exit when next_one is null or (wrapped and next_one <= whose);
    wrapped := wrapped or next_one <= whose;
    exit when wrapped and next_one > last_of_round;
    whose := next_one;
    select * into e from relevo.notification_events n
     where n.state in ('waiting', 'fanning') and n.lane = of_lane and coalesce(n.project, '') = whose
       and coalesce(n.turn_at, n.scheduled_at) <= at + interval '10 seconds' and n.scheduled_at <= at
       and (n.fanout_retry_at is null or n.fanout_retry_at <= at) and n.id <> all (given_up)
     order by coalesce(n.turn_at, n.scheduled_at), n.id
     limit 1
       for update skip locked;
    if found then
      return e;
    end if;
    -- many projects may have nothing but what is scheduled for later
    exit when not exists (select from relevo.notification_events n
                           where n.state in ('waiting', 'fanning') and n.lane = of_lane and n.scheduled_at <= at);
  end loop;
  return null;
end
$$;

-- Locks small personal events that are fanned out together, up to so many: those of one project, in the order of the line, then those of others.
create function relevo.pick_small_events_2(of_lane text, of_project text, due_hour timestamptz, few int, most int, left_out bigint[], at timestamptz)
  returns table (id bigint, is_late boolean, named int)
  language plpgsql volatile
as $$
#variable_conflict use_column
declare
  found_before int;
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
     and coalesce(e.turn_at, e.scheduled_at) <= at and coalesce(e.turn_at, e.scheduled_at) < due_hour + interval '1 hour'
     and e.scheduled_at <= at and e.audience = 'installations' and e.event_day is null and e.fanout_failures is null and a.named <= few
     and date_bin('1 hour', greatest(e.scheduled_at, e.created_at), 'epoch') = due_hour
     and e.id <> all (left_out)
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
       and e.scheduled_at <= at and e.scheduled_at < due_hour + interval '1 hour'
       and e.audience = 'installations' and e.event_day is null and e.fanout_failures is null and a.named <= few
       and date_bin('1 hour', greatest(e.scheduled_at, e.created_at), 'epoch') = due_hour
       and e.id <> all (left_out)
     order by e.lane desc, e.scheduled_at, e.id
     limit most - found_before
       for update of e skip locked;
  end if;
end
$$;

-- Fans out small personal events together, up to so many events and deliveries, from beginning to end; what is too late ends. Of watched
-- ones each phone is counted beside its event. Without a number of deliveries made if today's month is sealed: then nothing was.
create function relevo.fan_out_small_2(of_lane text, of_project text, due_hour timestamptz, few int, most_events int, most int, left_out bigint[],
                                       watched boolean, given_at timestamptz)
  returns table (fanned bigint[], late bigint[], created int, events bigint[], installations uuid[], counted uuid[], in_hour float8[],
                 busiest_day int[])
  language plpgsql volatile
as $$
#variable_conflict use_column
declare
  at timestamptz := coalesce(given_at, now());
begin
  select coalesce(array_agg(p.id) filter (where not p.is_late), '{}'), coalesce(array_agg(p.id) filter (where p.is_late), '{}')
    into fanned, late
    from (select s.id, s.is_late, sum(s.named) over (rows unbounded preceding) as so_far
            from relevo.pick_small_events_2(of_lane, of_project, due_hour, few, most_events, left_out, at) s) p
   where p.so_far <= most;
  if late <> '{}' then
    perform relevo.expire_events_1(late, at);
  end if;
  created := 0;
  if fanned <> '{}' then
    created := null;
    select f.* into created, events, installations from relevo.fan_out_events_1(fanned, watched, given_at) f;
    if created > 0 then
      perform relevo.wake('dispatch');
      if watched then
        select c.* into counted, in_hour, busiest_day from relevo.count_events_1(events, installations, true) c;
      end if;
    end if;
  end if;
  return next;
end
$$;

-- Makes and queues the deliveries of a slice of an event that this transaction has locked; nothing if its month is sealed. What the brake
-- watches is counted for a hundred of its phones. Of a stream that was stopped as a whole within the last hour nothing is made unless
-- somebody looked at it: then the row says neither yes nor no.
create function relevo.fan_out_slice_4(of_event relevo.notification_events, most int, watched boolean, looked boolean, step_aside boolean,
                                       enough int, given_at timestamptz)
  returns table (is_last boolean, targets int, created int, projects text[], counted uuid[], in_hour float8[], busiest_day int[])
  language plpgsql volatile
as $$
#variable_conflict use_column
declare
  at timestamptz := coalesce(given_at, now());
  e relevo.notification_events := of_event;
  due timestamptz := greatest(e.scheduled_at, e.created_at);
  origin_of text := 'app';
  stream bigint;
  release int;
  stopped boolean;
  was_held boolean;
  t record;
  ids bigint[];
begin
  if watched then
    if e.licitacion_id is not null then
      origin_of := relevo.event_origin(e);
    end if;
    select s.id, s.releases, s.held_above is not null and due - s.held_at < interval '1 hour',
           exists (select from relevo.held_events h where h.event_id = e.id)
      into stream, release, stopped, was_held
      from relevo.event_streams s where s.event_type = e.event_type and s.origin = origin_of;
    if stopped and not was_held and not looked and e.audience <> 'installations' then
      return next;
      return;
    end if;
  end if;
  if e.event_day is null then
    e.event_day := (at at time zone 'UTC')::date;
    e.fanout_started_at := at;
    e.fanout_upto := coalesce((select max(i.seq) from relevo.device_installations i), 0);
    if to_regclass('relevo.notification_deliveries' || to_char(e.event_day, '_YYYY_MM')) is null
       or to_regclass('relevo.push_requests' || to_char(e.event_day, '_YYYY_MM')) is null then
      perform relevo.ensure_partitions(e.event_day, 1);
    end if;
  end if;
  if relevo.hold_open(array[e.event_day]) = '{}' then
    return;
  end if;
  t := relevo.next_targets_3(e, most);
  is_last := t.is_last;
  targets := coalesce(cardinality(t.phones), 0);
  if targets > 0 and (step_aside or exists (select from relevo.event_followers f where f.event_id = e.id)) then
    select count(*), array_agg(u.phone) filter (where not u.is_there), array_agg(u.provider) filter (where not u.is_there),
           array_agg(u.project) filter (where not u.is_there)
      into targets, t.phones, t.providers, t.projects
      from (select u.*, step_aside and exists (select from relevo.notification_deliveries d
                                                where d.event_day = e.event_day and d.notification_event_id = e.id
                                                  and d.installation_id = u.phone offset 0) as is_there
              from unnest(t.phones, t.providers, t.projects) as u(phone, provider, project)
             where not exists (select from relevo.event_followers f -- whoever got what this event follows is not told again
                                 join relevo.notification_events o on o.id = f.former_event_id
                                 join relevo.notification_deliveries d
                                   on d.event_day = o.event_day and d.notification_event_id = o.id and d.installation_id = u.phone
                                where f.event_id = e.id and d.status in ('sent', 'ok', 'unconfirmed', 'unknown') offset 0)) u;
  end if;
  created := coalesce(cardinality(t.phones), 0);
  if created > 0 then
    ids := array(select nextval('relevo.delivery_ids') from generate_series(1, created));
    -- no `on conflict`: one that is there already and unknown to the event is told by the error, and the slice made anew beside it (step_aside);
    -- passed over in silence its chunk would name a delivery that was never made
    insert into relevo.notification_deliveries (event_day, id, notification_event_id, installation_id, event_type, provider, project, lane,
                                                at_most_once, deadline_at, created_at)
    select e.event_day, u.id, e.id, u.phone, e.event_type, u.provider, u.project, e.lane, e.at_most_once, e.deadline_at, now()
      from unnest(ids, t.phones, t.providers, t.projects) as u(id, phone, provider, project);
    if t.projects <@ t.projects[1:1] then
      insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                                     ids, installations)
      select t.projects[1], e.lane, at, e.event_day, e.id, e.event_type, now(), 0, 0, false, ids[n + 1 : n + 100], t.phones[n + 1 : n + 100]
        from generate_series(0, created - 1, 100) as n;
    else
      insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                                     ids, installations)
      select u.project, e.lane, at, e.event_day, e.id, e.event_type, now(), 0, 0, false, array_agg(u.id), array_agg(u.phone)
        from (select u.*, (row_number() over (partition by u.project) - 1) / 100 as piece
                from unnest(ids, t.phones, t.projects) as u(id, phone, project)) u
       group by u.project, u.piece;
    end if;
    insert into relevo.event_progress_deltas (event_id, status, deliveries) values (e.id, 'pending', created);
  end if;
  update relevo.notification_events n
     set state = case when is_last then 'fanned' else 'fanning' end, event_day = e.event_day, fanout_started_at = e.fanout_started_at,
         fanout_upto = e.fanout_upto, fanout_cursor = case when is_last then e.fanout_upto else t.last_seq end,
         targets_selected = e.targets_selected + targets, deliveries_created = e.deliveries_created + created,
         fanout_finished_at = case when is_last then at end, updated_at = at,
         turn_at = at + interval '10 seconds', -- whoever falls due meanwhile goes first
         fanout_failures = null, fanout_retry_at = null, fanout_error = null
   where n.id = e.id;
  if created > 0 then
    perform relevo.wake('dispatch');
    if watched then
      t.phones := case when e.audience <> 'installations' then '{00000000-0000-0000-0000-000000000000}'::uuid[] else '{}' end
        || case when created <= 100 then t.phones else array(select u.phone from unnest(t.phones) as u(phone) order by u.phone limit 100) end;
      if stream is null then
        insert into relevo.event_streams (event_type, origin, known_since) values (e.event_type, origin_of, due)
        on conflict (event_type, origin) do nothing;
        select s.id, s.releases, exists (select from relevo.held_events h where h.event_id = e.id) into stream, release, was_held
          from relevo.event_streams s where s.event_type = e.event_type and s.origin = origin_of;
      end if;
      if relevo.count_event_2(stream, release, was_held, due, t.phones) > enough then -- else that is too much for nobody
        select array_agg(c.installation_id), array_agg(relevo.count_of_hour(c.hour_at, c.in_hour, c.hour_before, due)), array_agg(c.busiest_day)
          into counted, in_hour, busiest_day
          from relevo.event_counts c where c.stream_id = stream and c.installation_id = any (t.phones);
        projects := array(select distinct u.project from unnest(t.projects) as u(project));
      end if;
    end if;
  end if;
  return next;
end
$$;

-- Locks the event whose turn it is to fan out, urgent ones first, then by project and by event, none once fan-out is paused, and fans it out:
-- `together` with others if it is one of several for few phones, or a `slice` of it, unless its month is `sealed`. One that needs to be looked
-- at, or any if nothing is to be made at once, is only `picked`. What nobody sees before it is committed must not need to be weighed, or taken
-- apart: else all is undone by an error.
create function relevo.fan_out_next_3(after_project text, given_up bigint[], apart bigint[], aside bigint[], few int, most_events int, most int,
                                      brake boolean, enough int, at_once boolean, unseen boolean, given_at timestamptz)
  returns table (id bigint, project text, audience text, lane text, event_day date, too_late boolean, named int, due_hour timestamptz, how text,
                 fanned bigint[], late bigint[], events bigint[], installations uuid[],
                 is_last boolean, targets int, created int, projects text[], counted uuid[], in_hour float8[], busiest_day int[])
  language plpgsql volatile
as $$
#variable_conflict use_column
declare
  at timestamptz := coalesce(given_at, now());
  e relevo.notification_events;
  watched boolean;
begin
  if exists (select from relevo.cycle_state s where s.cycle = 'fanout' and s.source = '' and s.paused_at is not null) then
    return;
  end if;
  e := relevo.next_event_1('urgent', after_project, given_up, at);
  if e.id is null then
    e := relevo.next_event_1('bulk', after_project, given_up, at);
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
                                  where n.state in ('waiting', 'fanning') and n.lane = e.lane and n.scheduled_at <= at and n.id <> e.id)) then
    named := (select count(*)
                from (select 1 from relevo.event_audience a where a.event_id = e.id
                      union all
                      select 1 from relevo.event_owners o
                        cross join lateral (select 1 from relevo.device_installations i where i.owner = o.owner limit few + 1) i
                       where o.event_id = e.id
                       limit few + 1) a);
  end if;
  if at_once and named <= few and e.fanout_failures is null and e.id <> all (apart) then
    how := 'together';
    select f.fanned, f.late, f.created, f.events, f.installations, f.counted, f.in_hour, f.busiest_day
      into fanned, late, created, events, installations, counted, in_hour, busiest_day
      from relevo.fan_out_small_2(e.lane, e.project, due_hour, few, most_events, most, given_up || apart, watched, given_at) f;
    if (select max(c.n) from unnest(in_hour) as c(n)) <= enough then
      counted := null; -- that is too much for nobody
      in_hour := null;
      busiest_day := null;
      events := null;
      installations := null;
    end if;
  elsif at_once and not too_late then
    how := 'slice';
    select f.* into is_last, targets, created, projects, counted, in_hour, busiest_day
      from relevo.fan_out_slice_4(e, most, watched, false, e.id = any (aside), enough, given_at) f;
    how := case when not found then 'sealed' when is_last is null then 'picked' else 'slice' end;
  end if;
  if unseen and (counted is not null or (how = 'together' and created is null)) then
    raise exception using errcode = 'RLV00', message = format('event %s has to be looked at before it is committed', e.id);
  end if;
  return next;
end
$$;

revoke all on function relevo.next_event_1(text, text, bigint[], timestamptz),
  relevo.pick_small_events_2(text, text, timestamptz, int, int, bigint[], timestamptz),
  relevo.fan_out_small_2(text, text, timestamptz, int, int, int, bigint[], boolean, timestamptz),
  relevo.fan_out_slice_4(relevo.notification_events, int, boolean, boolean, boolean, int, timestamptz),
  relevo.fan_out_next_3(text, bigint[], bigint[], bigint[], int, int, int, boolean, int, boolean, boolean, timestamptz) from public;

drop function relevo.fan_out_next_2(bigint[], bigint[], bigint[], int, int, int, boolean, int, boolean, boolean, timestamptz);
drop function relevo.fan_out_slice_3(relevo.notification_events, int, boolean, boolean, boolean, int, timestamptz);

create index notification_events_failing on relevo.notification_events (fanout_retry_at)
  where fanout_failures is not null and state in ('waiting', 'fanning');
create index notification_events_turns on relevo.notification_events (lane, coalesce(project, ''), coalesce(turn_at, scheduled_at), id)
  where state in ('waiting', 'fanning');

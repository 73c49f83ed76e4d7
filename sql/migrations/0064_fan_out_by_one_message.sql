-- needs relevo 0.2.0
-- An event for few phones is fanned out by one message: begun, made and committed, unless the brake has to look at it. Few preferences are
-- read in one go and in no order, and what the brake counted is told only where somebody has to weigh it. What came before and was in no
-- release is dropped.

-- How many events fell due within the last hour: those of this clock hour, and the share of the one before. As it was, but not by way of
-- numeric, in which one phone's count took 1 us.
create or replace function relevo.count_of_hour(hour_at timestamptz, in_hour int, hour_before int, at timestamptz) returns float8
  language sql immutable
  return case when at - hour_at < interval '1 hour' then
                in_hour + hour_before * (1 - greatest(0, date_part('epoch', at - hour_at) / 3600))
              when at - hour_at < interval '2 hours' then in_hour * (2 - date_part('epoch', at - hour_at) / 3600)
              else 0 end;

-- Where the preferences that may match an event are indexed, some places perhaps twice. As event_buckets, but for the usual event without
-- starting a plan.
create function relevo.buckets_of_1(e relevo.notification_events) returns text[]
  language plpgsql immutable
as $$
begin
  if e.match_topics <> '{}' or strpos(array_to_string(e.match_prefixes, ''), chr(31)) > 0 then
    return relevo.event_buckets(e);
  end if;
  return array['*'] || array_remove(string_to_array('k:' || replace(btrim(e.match_words), ' ', ' k:'), ' '), 'k:')
    || string_to_array('r:' || array_to_string(nullif(e.match_prefixes, '{}'), chr(31) || 'r:'), chr(31))
    || case when e.match_region is not null then array['g:' || e.match_region] end
    || case when e.match_tipo is not null then array['t:' || relevo.text_key(btrim(e.match_tipo))] end;
end
$$;

-- The next phones that an event concerns, up to a slice of them: how many candidates there were, the last one's sequence number, and of
-- those that may receive it the ids, providers and sending projects.
create function relevo.next_targets_2(e relevo.notification_events, most int,
                                      out candidates int, out last_seq bigint, out phones uuid[], out providers text[], out projects text[])
  language plpgsql stable
as $$
declare
  few constant int := least(most, 300); -- of more it would not pay to read them twice
  buckets text[];
  seqs bigint[];
  named uuid[];
begin
  if e.audience = 'matching' then
    buckets := relevo.buckets_of_1(e);
    if e.fanout_cursor = 0 then -- most events have few: those are read in no order
      select count(*), max(a.seq),
             array_agg(a.seq) filter (where a.sure or exists (select from relevo.notification_preferences p
                                                               where p.installation_id = a.installation_id and p.name = a.name
                                                                 and relevo.preference_matches(p, e)))
        into candidates, last_seq, seqs
        from (select x.seq, x.sure, x.installation_id, x.name from relevo.preference_index x
               where x.bucket = any (buckets) and x.seq > e.fanout_cursor and x.seq <= e.fanout_upto
               limit few) a;
    end if;
    if e.fanout_cursor > 0 or candidates = few then
      select count(*), max(a.seq),
             array_agg(a.seq) filter (where a.sure or exists (select from relevo.notification_preferences p
                                                               where p.installation_id = a.installation_id and p.name = a.name
                                                                 and relevo.preference_matches(p, e)))
        into candidates, last_seq, seqs
        from (select x.seq, x.sure, x.installation_id, x.name -- with ties: all preferences of a phone are in one slice
                from (select distinct u.bucket from unnest(buckets) as u(bucket)) b
                cross join lateral (select x.seq, x.sure, x.installation_id, x.name from relevo.preference_index x
                                     where x.bucket = b.bucket and x.seq > e.fanout_cursor and x.seq <= e.fanout_upto
                                     order by x.seq fetch first most rows with ties) x
               order by x.seq fetch first most rows with ties) a;
    end if;
    select array_agg(t.installation_id), array_agg(t.provider), array_agg(t.project)
      into phones, providers, projects
      from (select i.installation_id, i.provider, relevo.sending_project(i.provider, i.project) as project
              from relevo.device_installations i
             where i.seq = any (seqs) and relevo.may_receive(i)
               and (e.category is null or e.category <> all (i.opt_outs)) and (e.project is null or i.project = e.project)) t;
  elsif e.audience = 'everyone' then
    select count(*), max(t.seq), array_agg(t.installation_id) filter (where t.is_in), array_agg(t.provider) filter (where t.is_in),
           array_agg(t.project) filter (where t.is_in)
      into candidates, last_seq, phones, providers, projects
      from (select i.seq, i.installation_id, i.provider, relevo.sending_project(i.provider, i.project) as project,
                   not i.for_news and relevo.may_receive(i)
                     and (e.category is null or e.category <> all (i.opt_outs)) and (e.project is null or i.project = e.project) as is_in
              from relevo.device_installations i
             where i.seq > e.fanout_cursor and i.seq <= e.fanout_upto
             order by i.seq limit most) t;
  else
    named := array(select a.installation_id from relevo.event_audience a where a.event_id = e.id
                   union all
                   select i.installation_id from relevo.event_owners o
                     cross join lateral (select i.installation_id from relevo.device_installations i where i.owner = o.owner offset 0) i
                    where o.event_id = e.id);
    select count(*), max(t.seq), array_agg(t.installation_id) filter (where t.is_in), array_agg(t.provider) filter (where t.is_in),
           array_agg(t.project) filter (where t.is_in)
      into candidates, last_seq, phones, providers, projects
      from (select i.seq, i.installation_id, i.provider, relevo.sending_project(i.provider, i.project) as project,
                   relevo.may_receive(i)
                     and (e.category is null or e.category <> all (i.opt_outs)) and (e.project is null or i.project = e.project) as is_in
              from (select * from relevo.device_installations i where i.installation_id = any (named) offset 0) i -- not along all phones
             where i.seq > e.fanout_cursor and i.seq <= e.fanout_upto
             order by i.seq limit most) t;
  end if;
end
$$;

-- Counts one event of a known stream for some phones, of which the nil one stands for all, as count_events_1 does and in the same order, and
-- tells what that comes to for the phone with the most. Where all were counted before, an update by keys takes half as long as an insert
-- that finds each of them there.
create function relevo.count_event_2(of_stream bigint, of_release int, was_held boolean, due_at timestamptz, phones uuid[], out most float8)
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

-- Makes and queues the deliveries of a slice of an event that this transaction has locked; nothing if its month is sealed. What the brake
-- watches is counted for a hundred of its phones. Of a stream that was stopped as a whole within the last hour nothing is made unless
-- somebody looked at it: then the row says neither yes nor no.
create function relevo.fan_out_slice_3(of_event relevo.notification_events, most int, watched boolean, looked boolean, step_aside boolean,
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
  t := relevo.next_targets_2(e, most);
  is_last := t.candidates < most;
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
         fanout_finished_at = case when is_last then at end, updated_at = at
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

-- Locks the next event that is due to fan out, urgent ones first, passing by those another replica is at, none once fan-out is paused, and
-- fans it out: `together` with others if it is one of several for few phones, or a `slice` of it, unless its month is `sealed`. One that
-- needs to be looked at, or any if nothing is to be made at once, is only `picked`. What nobody sees before it is committed must not need
-- to be weighed, or taken apart: else all is undone by an error.
create function relevo.fan_out_next_2(given_up bigint[], apart bigint[], aside bigint[], few int, most_events int, most int, brake boolean,
                                      enough int, at_once boolean, unseen boolean, given_at timestamptz)
  returns table (id bigint, audience text, lane text, event_day date, too_late boolean, named int, due_hour timestamptz, how text,
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
  select * into e from relevo.notification_events n
   where n.state in ('waiting', 'fanning') and n.scheduled_at <= at and n.id <> all (given_up)
     and not exists (select from relevo.cycle_state s where s.cycle = 'fanout' and s.source = '' and s.paused_at is not null)
   order by n.lane desc, n.scheduled_at, n.id
   limit 1
     for update skip locked;
  if not found then
    return;
  end if;
  id := e.id;
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
  if at_once and named <= few and e.id <> all (apart) then
    how := 'together';
    select f.fanned, f.late, f.created, f.events, f.installations, f.counted, f.in_hour, f.busiest_day
      into fanned, late, created, events, installations, counted, in_hour, busiest_day
      from relevo.fan_out_small_1(e.lane, due_hour, few, most_events, most, given_up || apart, watched, given_at) f;
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
      from relevo.fan_out_slice_3(e, most, watched, false, e.id = any (aside), enough, given_at) f;
    how := case when not found then 'sealed' when is_last is null then 'picked' else 'slice' end;
  end if;
  if unseen and (counted is not null or (how = 'together' and created is null)) then
    raise exception using errcode = 'RLV00', message = format('event %s has to be looked at before it is committed', e.id);
  end if;
  return next;
end
$$;

revoke all on function relevo.buckets_of_1(relevo.notification_events), relevo.next_targets_2(relevo.notification_events, int),
  relevo.count_event_2(bigint, int, boolean, timestamptz, uuid[]),
  relevo.fan_out_slice_3(relevo.notification_events, int, boolean, boolean, boolean, int, timestamptz),
  relevo.fan_out_next_2(bigint[], bigint[], bigint[], int, int, int, boolean, int, boolean, boolean, timestamptz) from public;

drop function relevo.fan_out_next_1(bigint[], bigint[], bigint[], int, int, int, boolean, int, boolean, timestamptz);
drop function relevo.fan_out_slice_2(relevo.notification_events, int, boolean, boolean, boolean, int, timestamptz);
drop function relevo.next_targets_1(relevo.notification_events, int);
drop function relevo.count_event_1(bigint, int, boolean, timestamptz, uuid[]);

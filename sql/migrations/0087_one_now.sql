-- needs relevo 0.3.0
-- The time that tests may give is read by one function, relevo.now().

-- Written by `make migration` from sql/functions; what stands above this line is yours.

set local check_function_bodies = off;

-- Ends some of what is still open in an old month and not claimed, chunk by chunk, and tells how many deliveries it took out of the queues:
-- those whose event was deleted, too, so that whoever calls this again and again comes to the end.
create or replace function relevo.close_deliveries(of_month date, most integer, at timestamptz) returns integer language plpgsql volatile
  security definer set search_path = pg_catalog, pg_temp
as $$
declare
  next_month date := (of_month + interval '1 month')::date;
  ended int;
begin
  with unsent as materialized (
    delete from relevo.due_chunks q
     where q.id = any (array(select o.id from relevo.due_chunks o where o.event_day >= of_month and o.event_day < next_month
                              order by o.id limit greatest(1, most / 100) for update skip locked))
    returning q.event_day, q.ids
  ), awaited as materialized (
    delete from relevo.awaited_receipts r
     where r.id = any (array(select o.id from relevo.awaited_receipts o
                              where o.claim_token is null and exists (select from unnest(o.days) as d(day) where d.day >= of_month and d.day < next_month)
                              order by o.id limit greatest(1, most / 100) for update skip locked))
    returning r.*
  ), kept as ( -- what was sent together with them, for an event of another month, is still awaited
    insert into relevo.awaited_receipts (project, look_at, sent_at, days, ids, installations, tickets, versions, attempts)
    select a.project, a.look_at, a.sent_at, array_agg(u.event_day), array_agg(u.id), array_agg(u.installation_id), array_agg(u.ticket),
           array_agg(u.version), array_agg(u.attempt)
      from awaited a
      cross join unnest(a.days, a.ids, a.installations, a.tickets, a.versions, a.attempts) as u(event_day, id, installation_id, ticket, version, attempt)
     where not (u.event_day >= of_month and u.event_day < next_month)
     group by a.id, a.project, a.look_at, a.sent_at
  ), open as materialized (
    select u.event_day, u.ids as id, 'expired' as status, 'It was not sent before its month was archived.' as why
      from (select q.event_day, unnest(q.ids) as ids from unsent q) u
    union all
    select u.event_day, u.id, 'unconfirmed', 'No receipt came before its month was archived.'
      from awaited a cross join unnest(a.days, a.ids) as u(event_day, id) where u.event_day >= of_month and u.event_day < next_month
  ), locked as materialized (
    select d.event_day, d.id, d.status as former_status, o.status, o.why
      from (select * from open order by event_day, id) o
      cross join lateral (select d.event_day, d.id, d.status from relevo.notification_deliveries d
                           where d.event_day = o.event_day and d.id = o.id and d.completed_at is null for no key update) d
  ), closed as (
    update relevo.notification_deliveries d
       set status = l.status, completed_at = relevo.now(at), updated_at = relevo.now(at), last_error_code = 'retired', last_error_message = l.why
      from locked l
     where d.event_day = l.event_day and d.id = l.id
    returning d.notification_event_id as event_id, d.status, l.former_status
  ), told as (
    insert into relevo.event_progress_deltas (event_id, status, deliveries)
    select m.event_id, m.status, sum(m.n)::int
      from (select c.event_id, c.status, 1 as n from closed c
            union all
            select c.event_id, c.former_status, -1 from closed c) m
     group by m.event_id, m.status
  )
  select count(*)::int into ended from open;
  return ended;
end
$$;

revoke all on function relevo.close_deliveries from public;

-- Drops a month that was verified and whose grace is over: exactly the relation that was exported, or nothing.
create or replace function relevo.drop_retired(of_entity text, of_month date, at timestamptz) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  x relevo.archive_exports;
begin
  select * into x from relevo.archive_exports
   where entity = of_entity and month = of_month and state = 'verified' and drop_eligible_at <= relevo.now(at) for update;
  if not found then
    return false;
  end if;
  execute format('lock table relevo_archive.%I in access exclusive mode', x.relation); -- from here on the name is this relation's
  if not relevo.is_sealed_as(format('relevo_archive.%I', x.relation)::regclass, x.export_id) then
    raise exception using errcode = 'object_not_in_prerequisite_state',
      message = format('relevo_archive.%I is not the relation that was exported: it does not bear the seal of export %s', x.relation, x.export_id),
      hint = 'Bring the exported one back under its name.';
  end if;
  execute format('drop table relevo_archive.%I', x.relation);
  update relevo.archive_exports set state = 'dropped', dropped_at = relevo.now(at), updated_at = now(), last_error = null
   where entity = of_entity and month = of_month;
  return true;
end
$$;

revoke all on function relevo.drop_retired from public;

-- Fans out small personal events, which the caller has picked and locked, from beginning to end, to phones of their project alone if they have
-- one, and names their deliveries' events and phones if they are watched. Nothing at all if today's month is sealed.
create or replace function relevo.fan_out_events_1(of_events bigint[], watched boolean, given_at timestamptz)
  returns table (created int, events bigint[], installations uuid[])
  language plpgsql volatile
as $$
declare
  at timestamptz := relevo.now(given_at);
  today date := (at at time zone 'UTC')::date;
begin
  perform relevo.ensure_partitions(today, 1);
  if relevo.hold_open(array[today]) = '{}' then
    return;
  end if;
  return query
  with targets as materialized ( -- an event that reaches nobody stands here once, without a phone
    select g.place, e.id as event_id, e.event_type, e.lane, e.at_most_once, e.deadline_at, t.installation_id, t.provider, t.project
      from unnest(of_events) with ordinality as g(id, place)
      cross join lateral (select * from relevo.notification_events e where e.id = g.id offset 0) e
      left join lateral (
        select (n.phone).installation_id, (n.phone).provider, relevo.sending_project((n.phone).provider, (n.phone).project) as project
          from (select p.phone from relevo.event_audience a
                  cross join lateral (select i as phone from relevo.device_installations i where i.installation_id = a.installation_id offset 0) p
                 where a.event_id = e.id
                union all
                select p.phone from relevo.event_owners o
                  cross join lateral (select i as phone from relevo.device_installations i where i.owner = o.owner offset 0) p
                 where o.event_id = e.id) n
         where relevo.may_receive(n.phone) and (e.project is null or (n.phone).project = e.project) and (e.category is null or e.category <> all ((n.phone).opt_outs))
           and not exists (select from relevo.event_followers f -- whoever got what this event follows is not told again
                             join relevo.notification_events o on o.id = f.former_event_id
                             join relevo.notification_deliveries d
                               on d.event_day = o.event_day and d.notification_event_id = o.id and d.installation_id = (n.phone).installation_id
                            where f.event_id = e.id and d.status in ('sent', 'ok', 'unconfirmed', 'unknown'))) t on true
  ), made as (
    insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, provider, project, lane,
                                                at_most_once, deadline_at, created_at)
    select today, t.event_id, t.installation_id, t.event_type, t.provider, t.project, t.lane, t.at_most_once, t.deadline_at, now()
      from targets t
     where t.installation_id is not null
     order by t.place
    returning id, notification_event_id, installation_id, event_type, project, lane, created_at
  ), queued as (
    insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                                   ids, installations)
    select m.project, m.lane, at, today, m.notification_event_id, m.event_type, m.created_at, 0, 0, false, array_agg(m.id), array_agg(m.installation_id)
      from made m
     group by m.project, m.lane, m.notification_event_id, m.event_type, m.created_at
     order by min(m.id)
  ), counted as materialized (
    select t.event_id, count(t.installation_id)::int as deliveries from targets t group by t.event_id
  ), fanned as (
    update relevo.notification_events e
       set state = 'fanned', event_day = today, fanout_started_at = at, fanout_finished_at = at, updated_at = at,
           fanout_upto = u.seq, fanout_cursor = u.seq, targets_selected = c.deliveries, deliveries_created = c.deliveries
      from counted c
      cross join (select coalesce(max(i.seq), 0) as seq from relevo.device_installations i) u
     where e.id = c.event_id
  ), progress as (
    insert into relevo.event_progress_deltas (event_id, status, deliveries)
    select c.event_id, 'pending', c.deliveries from counted c where c.deliveries > 0
  )
  select count(*)::int, case when watched then array_agg(m.notification_event_id) end, case when watched then array_agg(m.installation_id) end from made m;
end
$$;

revoke all on function relevo.fan_out_events_1 from public;

-- Locks the event whose turn it is to fan out, urgent ones first, then by project and by event, none once fan-out is paused, and fans it out:
-- `together` with others if it is one of several for few phones, or a `slice` of it, unless its month is `sealed`. One that needs to be looked
-- at, or any if nothing is to be made at once, is only `picked`. What nobody sees before it is committed must not need to be weighed, or taken
-- apart: else all is undone by an error.
create or replace function relevo.fan_out_next_3(after_project text, given_up bigint[], apart bigint[], aside bigint[], few int, most_events int, most int,
                                      brake boolean, enough int, at_once boolean, unseen boolean, given_at timestamptz)
  returns table (id bigint, project text, audience text, lane text, event_day date, too_late boolean, named int, due_hour timestamptz, how text,
                 fanned bigint[], late bigint[], events bigint[], installations uuid[],
                 is_last boolean, targets int, created int, projects text[], counted uuid[], in_hour float8[], busiest_day int[])
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

revoke all on function relevo.fan_out_next_3 from public;

-- Fans out small personal events together, up to so many events and deliveries, from beginning to end; what is too late ends. Of watched
-- ones each phone is counted beside its event. Without a number of deliveries made if today's month is sealed: then nothing was.
create or replace function relevo.fan_out_small_2(of_lane text, of_project text, due_hour timestamptz, few int, most_events int, most int, left_out bigint[],
                                       watched boolean, given_at timestamptz)
  returns table (fanned bigint[], late bigint[], created int, events bigint[], installations uuid[], counted uuid[], in_hour float8[],
                 busiest_day int[])
  language plpgsql volatile
as $$
#variable_conflict use_column
declare
  at timestamptz := relevo.now(given_at);
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

revoke all on function relevo.fan_out_small_2 from public;

-- Reads back what a claim holds, its COMMIT answer lost, and looks at it as a claim does.
create or replace function relevo.adopt_claim_2(claim uuid, at timestamptz)
  returns table (event_day date, event_id bigint, event_type text, at_most_once boolean, attempt_count smallint, lapse_count smallint,
                 deadline_at timestamptz, seconds_left float8, created_at timestamptz, ids bigint[], installations uuid[], tokens text[],
                 versions int[], platforms text[], locales text[], obstacles text[], lease_ms int)
  language sql stable
as $$
  select l.*, c.lease_ms
    from relevo.claims c
    cross join lateral relevo.look_at_2(
      array(select row(0, d.project, d.lane, c.due_at, d.event_day, d.notification_event_id, d.event_type, d.created_at, d.attempt_count,
                       d.lapse_count, d.last_error_code is not null, array[d.id], array[d.installation_id])::relevo.due_chunks
              from unnest(c.days, c.ids) with ordinality as k(event_day, id, n)
              cross join lateral (select * from relevo.notification_deliveries d
                                   where d.event_day = k.event_day and d.id = k.id and d.status in ('pending', 'retryable') offset 0) d
             order by k.n), relevo.now(at)) l
   where c.token = claim
$$;

revoke all on function relevo.adopt_claim_2 from public;

-- Claims what is due in one lane of a project, oldest first: chunks from the head as long as they share one lease, up to so many
-- deliveries, the last one in part. A chunk whose claims lapsed too often is claimed alone. Only what is taken is ever locked: the walk
-- along the index locks nothing, and each chunk is deleted by its key, unless another holds it. It begins at the time that a look found the
-- first chunk at: while somebody holds a snapshot, all that was sent meanwhile still stands before that.
create or replace function relevo.claim_due_4(claim uuid, worker text, of_cycle text, of_project text, of_lane text, most int, given_at timestamptz,
                                   shard int, shards int, only_types text[], not_types text[], suspect_lapses int, usual_lease_ms int,
                                   since timestamptz)
  returns table (event_day date, event_id bigint, event_type text, at_most_once boolean, attempt_count smallint, lapse_count smallint,
                 deadline_at timestamptz, seconds_left float8, created_at timestamptz, ids bigint[], installations uuid[], tokens text[],
                 versions int[], platforms text[], locales text[], obstacles text[], lease_ms int, as_of text, places text)
  language plpgsql volatile
as $$
#variable_conflict use_column
declare
  at timestamptz := relevo.now(given_at);
  head record;
  chunk relevo.due_chunks;
  taken relevo.due_chunks[] := '{}';
  lease int;
  room int := most;
begin
  for head in
    select c.id, c.lapse_count, coalesce((select t.lease_ms from relevo.event_types t where t.event_type = c.event_type), usual_lease_ms) as lease_ms
      from relevo.due_chunks c
     where c.project = of_project and c.lane = of_lane and c.due_at <= at and c.due_at >= coalesce(since, '-infinity')
       and (only_types is null or c.event_type = any (only_types)) and (not_types is null or c.event_type <> all (not_types))
       and relevo.in_shard(c.id, shard, shards)
     order by c.due_at, c.id
  loop
    exit when room <= 0 or lease <> head.lease_ms or (lease is not null and head.lapse_count >= suspect_lapses);
    delete from relevo.due_chunks d
     where d.id = (select c.id from relevo.due_chunks c where c.id = head.id for update skip locked)
    returning d.* into chunk;
    continue when not found;
    if cardinality(chunk.ids) > room then
      perform relevo.put_back_1(chunk, chunk.ids[room + 1:], chunk.installations[room + 1:]);
      chunk.ids := chunk.ids[:room];
      chunk.installations := chunk.installations[:room];
    end if;
    taken := taken || chunk;
    room := room - cardinality(chunk.ids);
    lease := head.lease_ms;
    exit when head.lapse_count >= suspect_lapses;
  end loop;
  if lease is null then
    return;
  end if;
  perform relevo.write_claim_1(claim, worker, of_cycle, lease, at, taken);
  return query select * from relevo.look_at_3(taken, at, lease);
end
$$;

revoke all on function relevo.claim_due_4 from public;

-- Claims a few deliveries for a probe out of the oldest due ones: first those whose phone, event and past nothing speaks against.
create or replace function relevo.claim_probe_2(claim uuid, worker text, of_cycle text, of_project text, of_lane text, most int, given_at timestamptz,
                                     shard int, shards int, only_types text[], not_types text[], usual_lease_ms int, look_at int)
  returns table (event_day date, event_id bigint, event_type text, at_most_once boolean, attempt_count smallint, lapse_count smallint,
                 deadline_at timestamptz, seconds_left float8, created_at timestamptz, ids bigint[], installations uuid[], tokens text[],
                 versions int[], platforms text[], locales text[], obstacles text[], lease_ms int)
  language plpgsql volatile
as $$
#variable_conflict use_column
declare
  at timestamptz := relevo.now(given_at);
  faulty uuid[] := array(select u.installation_id
                           from relevo.credential_answers a cross join unnest(a.installations, a.faulty) as u(installation_id, faulty)
                          where a.project = of_project and u.faulty is not false);
  refused bigint[] := array(select r.event_id from relevo.refused_events r where r.project = of_project);
  picked record;
  chunk relevo.due_chunks;
  taken relevo.due_chunks[] := '{}';
  lease int;
  room int := most;
begin
  for picked in
    select h.chunk_id, h.lease_ms, array_agg(h.id order by h.place) as ids, min(h.place) as first_place
      from (select c.id as chunk_id, u.id,
                   coalesce((select t.lease_ms from relevo.event_types t where t.event_type = c.event_type), usual_lease_ms) as lease_ms,
                   row_number() over (order by u.installation_id = any (faulty) or c.event_id = any (refused), c.had_error, c.due_at, u.id) as place
              from (select o.*, sum(cardinality(o.ids)) over (order by o.due_at, o.id) - cardinality(o.ids) as before
                      from (select * from relevo.due_chunks o
                             where o.project = of_project and o.lane = of_lane and o.due_at <= at
                               and (only_types is null or o.event_type = any (only_types))
                               and (not_types is null or o.event_type <> all (not_types))
                               and relevo.in_shard(o.id, shard, shards)
                             order by o.due_at, o.id limit look_at) o) c
              cross join lateral unnest(c.ids, c.installations) as u(id, installation_id)
             where c.before < look_at) h
     where h.place <= 10 * most -- some may be in others' hands
     group by h.chunk_id, h.lease_ms
     order by min(h.place)
  loop
    exit when room <= 0;
    continue when lease <> picked.lease_ms;
    delete from relevo.due_chunks d
     where d.id = (select c.id from relevo.due_chunks c where c.id = picked.chunk_id for update skip locked)
    returning d.* into chunk;
    continue when not found;
    picked.ids := picked.ids[:room];
    if cardinality(picked.ids) < cardinality(chunk.ids) then
      perform relevo.put_back_1(chunk, array_agg(u.id), array_agg(u.installation_id))
         from unnest(chunk.ids, chunk.installations) as u(id, installation_id) where u.id <> all (picked.ids);
      select array_agg(u.id order by array_position(picked.ids, u.id)), array_agg(u.installation_id order by array_position(picked.ids, u.id))
        into chunk.ids, chunk.installations
        from unnest(chunk.ids, chunk.installations) as u(id, installation_id) where u.id = any (picked.ids);
    end if;
    taken := taken || chunk;
    room := room - cardinality(chunk.ids);
    lease := picked.lease_ms;
  end loop;
  if lease is null then
    return;
  end if;
  perform relevo.write_claim_1(claim, worker, of_cycle, lease, at, taken);
  return query select l.*, lease from relevo.look_at_2(taken, at) l;
end
$$;

revoke all on function relevo.claim_probe_2 from public;

-- Finds the lanes that have something new, which still have something of those asked for again, and which come next on the way along the queue's
-- index; of each the first thing that falls due, and in how many seconds that is and may be sent. Every row tells the last number given out in
-- the queue, the oldest transaction under way and the first one to come, and how far the way along the index went. No row once dispatch is paused.
create or replace function relevo.due_lanes_2(given_at timestamptz, after_id bigint, most_new int, again_projects text[], again_lanes text[],
                                   again_since timestamptz[], after_project text, after_lane text, most int)
  returns table (project text, lane text, due_at timestamptz, wait_s double precision, troubled boolean, numbered bigint, oldest_xid bigint,
                 next_xid bigint, walked int, last_project text, last_lane text)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
  set random_page_cost = 0 set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  at timestamptz := relevo.now(given_at);
begin
  if exists (select from relevo.cycle_state s where s.cycle = 'dispatch' and s.source = '' and s.paused_at is not null) then
    return;
  end if;
  return query
    with recursive way as ( -- the first of a lane in the index is also the one that falls due first
      (select 1 as place, q.project, q.lane, q.due_at from relevo.due_chunks q
        where (q.project, q.lane) > (after_project, after_lane)
        order by q.project, q.lane, q.due_at, q.id limit least(most, 1))
      union all
      select w.place + 1, n.project, n.lane, n.due_at
        from way w
        cross join lateral (select q.project, q.lane, q.due_at from relevo.due_chunks q
                             where (q.project, q.lane) > (w.project, w.lane)
                             order by q.project, q.lane, q.due_at, q.id limit 1) n
    ), walked as materialized (
      select w.place, w.project, w.lane, w.due_at from way w limit most
    ), lanes as materialized (
      select f.project, f.lane, min(f.due_at) as due_at
        from (select w.project, w.lane, w.due_at from walked w
              union all
              select n.project, n.lane, n.due_at
                from (select q.project, q.lane, q.due_at from relevo.due_chunks q where q.id > after_id order by q.id limit most_new) n
              union all
              select a.project, a.lane, n.due_at
                from unnest(again_projects, again_lanes, again_since) as a(project, lane, since)
                cross join lateral (select q.due_at from relevo.due_chunks q
                                     where q.project = a.project and q.lane = a.lane and q.due_at >= coalesce(a.since, '-infinity')
                                     order by q.due_at, q.id limit 1) n) f
       group by f.project, f.lane
    ), head as materialized (
      select coalesce((select s.last_value from pg_sequences s where s.schemaname = 'relevo' and s.sequencename = 'due_chunks_id_seq'), 0) as numbered,
             pg_snapshot_xmin(pg_current_snapshot())::text::bigint as oldest_xid,
             pg_snapshot_xmax(pg_current_snapshot())::text::bigint as next_xid,
             (select count(*)::int from walked) as walked
    )
    select l.project, l.lane, case when l.due_at > '2000-01-01Z' then least(l.due_at, '9000-01-01Z') end, -- no other is worth a look's failing
           extract(epoch from least(greatest(l.due_at, case when p.breaker <> 'closed' then p.probe_at else p.rest_until end, '2000-01-01Z'),
                                    '9000-01-01Z') - at)::float8,
           coalesce(p.breaker <> 'closed', false), h.numbered, h.oldest_xid, h.next_xid, h.walked, w.project, w.lane
      from head h
      left join walked w on w.place = h.walked
      left join lanes l on true
      left join relevo.projects p on p.project = l.project;
end
$$;

revoke all on function relevo.due_lanes_2 from public;

-- Claims sent deliveries of a project whose receipts are due, the longest due first, as many requests' worth as fit, at least one; a row for
-- each request's worth.
create or replace function relevo.claim_awaited_1(
  claim uuid, worker text, of_project text, most int, given_at timestamptz, shard int, shards int, lease_ms int
) returns table (sent_at timestamptz, days date[], ids bigint[], installations uuid[], tickets text[], versions int[], attempts smallint[])
  language plpgsql volatile
as $$
#variable_conflict use_column
begin
  return query
  with oldest as materialized (
    select o.id
      from (select w.id, sum(cardinality(w.ids)) over (order by w.look_at, w.id) as upto,
                   row_number() over (order by w.look_at, w.id) as place
              from (select r.id, r.look_at, r.ids
                      from relevo.awaited_receipts r
                     where r.project = of_project and r.look_at <= relevo.now(given_at) and r.claim_token is null
                       and relevo.in_shard(r.id, shard, shards)
                     order by r.look_at, r.id
                     limit most) w) o
     where o.upto <= most or o.place = 1
  ), taken as materialized (
    update relevo.awaited_receipts r
       set claim_token = claim
     where r.id = any (array(select w.id from oldest o cross join lateral (
                               select w.id from relevo.awaited_receipts w where w.id = o.id and w.claim_token is null
                                  for no key update skip locked) w))
    returning r.look_at, r.id, r.sent_at, r.days, r.ids, r.installations, r.tickets, r.versions, r.attempts
  ), written as (
    insert into relevo.claims (token, worker_id, cycle, claimed_at, lease_ms, leased_until, days, ids)
    select claim, worker, 'receipt', relevo.now(given_at), claim_awaited_1.lease_ms,
           relevo.now(given_at) + claim_awaited_1.lease_ms * interval '1 millisecond', array_agg(u.event_day), array_agg(u.id)
      from taken t cross join unnest(t.days, t.ids) as u(event_day, id)
    having count(*) > 0
  )
  select t.sent_at, t.days, t.ids, t.installations, t.tickets, t.versions, t.attempts from taken t order by t.look_at, t.id;
end
$$;

revoke all on function relevo.claim_awaited_1 from public;

-- Confirms all that a claim of receipts holds, and ends it; returns how many deliveries that were. Nothing is written once the claim was
-- taken back (0), or while it does not hold just as many as were asked for (null): then each answer has to be looked at.
create or replace function relevo.settle_confirmed_1(claim uuid, asked int, given_at timestamptz) returns int
  language plpgsql volatile
  set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
  held_days date[];
  held_ids bigint[];
  of_day date;
  part int;
  confirmed int := 0;
begin
  perform from relevo.claims c where c.token = claim for no key update;
  if not found then
    return 0;
  end if;
  if (select sum(cardinality(r.ids)) from relevo.awaited_receipts r where r.claim_token = claim) is distinct from asked then
    return null;
  end if;
  with done as (
    delete from relevo.awaited_receipts r where r.claim_token = claim returning r.days, r.ids
  )
  select array_agg(u.event_day), array_agg(u.id order by u.id) into held_days, held_ids
    from done d cross join unnest(d.days, d.ids) as u(event_day, id);
  for of_day in select distinct d.day from unnest(held_days) as d(day) order by d.day loop
    with written as (
      update relevo.notification_deliveries d
         set status = 'ok', completed_at = relevo.now(given_at), updated_at = relevo.now(given_at), provider_receipt_id = d.provider_ticket_id
       where d.event_day = of_day and d.id = any (held_ids) and d.status = 'sent'
      returning d.notification_event_id as event_id, d.project
    ), progress as (
      insert into relevo.event_progress_deltas (event_id, status, deliveries)
      select w.event_id, s.status, (s.sign * count(*))::int
        from written w cross join (values ('ok', 1), ('sent', -1)) as s(status, sign)
       group by w.event_id, s.status, s.sign
    ), tallied as (
      insert into relevo.push_tallies (project, at, sent, answers, unregistered, confirmed, failed)
      select w.project, relevo.now(given_at), 0, count(*), 0, count(*), 0 from written w group by w.project
    )
    select count(*) into part from written;
    confirmed := confirmed + part;
  end loop;
  delete from relevo.claims c where c.token = claim;
  return confirmed;
end
$$;

revoke all on function relevo.settle_confirmed_1 from public;

-- Returns the time to go by: what a test gives, else the start of the transaction. It is inlined, so a plan sees the coalesce itself.
create or replace function relevo.now(at timestamptz default null) returns timestamptz
  language sql stable parallel safe
  return coalesce(at, now());

revoke all on function relevo.now from public;

-- Journals a wave that is what the claim holds next, if nothing stands in its way; else it writes nothing and says so. The wave's requests
-- are given by the places of their first and last delivery in it.
create or replace function relevo.journal_wave_1(claim uuid, of_project text, wave_ids bigint[], events bigint[], request_ids uuid[], firsts int[], lasts int[],
                                      timeout_ms int, given_at timestamptz) returns boolean language plpgsql volatile
as $$
declare
  at timestamptz := relevo.now(given_at);
  size int := cardinality(wave_ids);
  worker text;
  held_days date[];
  held_ids bigint[];
begin
  select c.worker_id, c.days[:size], c.ids[:size] into worker, held_days, held_ids
    from relevo.claims c
   where c.token = claim and c.leased_until > at + timeout_ms * interval '1 millisecond'
     for key share;
  if held_ids is distinct from wave_ids
     or exists (select from unnest(events) as v(event_id)
                  left join lateral (select e.deadline_at, e.ended_at, true as is_there from relevo.notification_events e
                                      where e.id = v.event_id offset 0) e on true
                 where e.is_there is null or e.ended_at is not null or e.deadline_at <= at)
     or (exists (select from relevo.late_tickets)
         and exists (select from unnest(held_days, held_ids) as k(event_day, id)
                      cross join lateral (select from relevo.late_tickets l
                                           where l.event_day = k.event_day and l.delivery_id = k.id offset 0) l)) then
    return false;
  end if;
  insert into relevo.push_requests (request_day, id, claim_token, worker_id, project, journalled_at, days, ids)
  select (at at time zone 'UTC')::date, q.id, claim, worker, of_project, at, held_days[q.first:q.last], held_ids[q.first:q.last]
    from unnest(request_ids, firsts, lasts) as q(id, first, last);
  return true;
end
$$;

revoke all on function relevo.journal_wave_1 from public;

-- Notes that events were sent for the first time, and their tenders; an event that somebody holds is passed by: whoever deletes it waits for
-- the deliveries that are locked here already.
create or replace function relevo.note_first_sent(event_ids bigint[], at timestamptz) returns void
  language plpgsql volatile
as $$
begin
  perform relevo.note_sent_1(event_ids, relevo.now(at));
end
$$;

revoke all on function relevo.note_first_sent from public;

-- As before, by a key that leaves no choice; to sort is allowed, for before PostgreSQL 18 what is forbidden and done all the same looks so dear
-- that no other cost counts.
create or replace function relevo.settle_sent_2(claim uuid, of_project text, sent_ids bigint[], unsent int[], tickets text[], of_installations uuid[],
                                     versions int[], of_attempts smallint[], request_ids uuid[], firsts int[], lasts int[], events bigint[],
                                     formers text[], counts int[], receipt_ms int, finish boolean, given_at timestamptz) returns int
  language plpgsql volatile
  set enable_sort = on
as $$
declare
  at timestamptz := relevo.now(given_at);
  size int := cardinality(sent_ids);
  reach int := size + cardinality(unsent);
  held_days date[];
  held_ids bigint[];
  kept_days date[] := '{}';
  kept_ids bigint[] := '{}';
  is_all boolean;
  written int;
begin
  select c.days[:reach], c.ids[:reach], cardinality(c.ids) = size into held_days, held_ids, is_all
    from relevo.claims c where c.token = claim for no key update;
  if unsent <> '{}' then
    select array_agg(u.event_day order by u.place) filter (where u.place = any (unsent)),
           array_agg(u.id order by u.place) filter (where u.place = any (unsent)),
           array_agg(u.event_day order by u.place) filter (where u.place <> all (unsent)),
           array_agg(u.id order by u.place) filter (where u.place <> all (unsent))
      into kept_days, kept_ids, held_days, held_ids
      from unnest(held_days, held_ids) with ordinality as u(event_day, id, place);
  end if;
  if held_ids is distinct from sent_ids then
    return null;
  end if;
  update relevo.notification_deliveries d
     set status = 'sent', attempt_count = d.attempt_count + 1, lapse_count = 0, last_attempt_at = at, completed_at = null, updated_at = at,
         last_error_code = null, last_error_message = null, provider_ticket_id = a.ticket_id,
         token_version = coalesce(a.token_version, d.token_version)
    from (select * from unnest(held_days, held_ids, tickets, versions) as u(event_day, id, ticket_id, token_version)
           order by u.event_day, u.id) a -- every writer locks deliveries in this order: no deadlock
   where d.event_day = any (array[a.event_day]) and d.id = a.id;
  get diagnostics written = row_count;
  if written <> size then
    raise exception using errcode = 'no_data_found', message = format('%s of %s deliveries of claim %s are gone', size - written, size, claim);
  end if;
  insert into relevo.awaited_receipts (project, look_at, sent_at, days, ids, installations, tickets, versions, attempts)
  select of_project, at + receipt_ms * interval '1 millisecond', at, held_days[q.first:q.last], held_ids[q.first:q.last],
         of_installations[q.first:q.last], tickets[q.first:q.last], versions[q.first:q.last], of_attempts[q.first:q.last]
    from unnest(firsts, lasts) as q(first, last);
  insert into relevo.event_progress_deltas (event_id, status, deliveries)
  select m.event_id, m.status, sum(m.n)::int
    from unnest(events, formers, counts) as c(event_id, former, n)
    cross join lateral (values (c.event_id, 'sent', c.n), (c.event_id, c.former, -c.n)) as m(event_id, status, n)
   group by m.event_id, m.status
  having sum(m.n) <> 0;
  insert into relevo.push_tallies (project, at, sent, answers, unregistered, failed) values (of_project, at, size, size, 0, 0);
  if 'retryable' = any (formers) then
    insert into relevo.event_repeat_deltas (event_id, repeats)
    select c.event_id, sum(c.n)::int from unnest(events, formers, counts) as c(event_id, former, n) where c.former = 'retryable' group by c.event_id;
  end if;
  perform relevo.note_sent_1(events, at);
  update relevo.push_requests r set answered_at = at, outcome = 'answered'
   where r.claim_token = claim and r.answered_at is null and r.id = any (request_ids);
  if exists (select from relevo.late_tickets) then
    delete from relevo.late_tickets l using unnest(held_days, held_ids, tickets) as a(event_day, id, ticket_id)
     where l.event_day = a.event_day and l.delivery_id = a.id and l.ticket_id = a.ticket_id;
  end if;
  if is_all and finish then
    delete from relevo.claims c where c.token = claim;
  else
    update relevo.claims c
       set days = kept_days || c.days[reach + 1:], ids = kept_ids || c.ids[reach + 1:],
           leased_until = case when at < c.claimed_at + 3 * c.lease_ms * interval '1 millisecond'
                               then greatest(c.leased_until, at + c.lease_ms * interval '1 millisecond') else c.leased_until end
     where c.token = claim;
  end if;
  return written;
end
$$;

revoke all on function relevo.settle_sent_2 from public;

-- Makes and queues the deliveries of a slice of an event that this transaction has locked; nothing if its month is sealed. What the brake
-- watches is counted for a hundred of its phones. Of a stream that was stopped as a whole within the last hour nothing is made unless
-- somebody looked at it: then the row says neither yes nor no.
create or replace function relevo.fan_out_slice_4(of_event relevo.notification_events, most int, watched boolean, looked boolean, step_aside boolean,
                                       enough int, given_at timestamptz)
  returns table (is_last boolean, targets int, created int, projects text[], counted uuid[], in_hour float8[], busiest_day int[])
  language plpgsql volatile
as $$
#variable_conflict use_column
declare
  at timestamptz := relevo.now(given_at);
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

revoke all on function relevo.fan_out_slice_4 from public;

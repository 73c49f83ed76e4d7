-- needs relevo 0.3.0
-- Brings 0.3.0 to 0.4.0: function names without version numbers, with thin calls under the names that 0.3.0 uses; one function for the time that counts;
-- settling, receipts and the end of a claim as functions.

create type relevo.written_delivery as (
  event_day       date,
  id              bigint,
  event_id        bigint,
  project         text,
  installation_id uuid,
  ticket_id       text,
  token_version   int,
  attempt         smallint,
  former_status   text,
  status          text,
  due_at          timestamptz,
  is_answer       boolean,
  has_failed      boolean,
  error_code      text,
  said_code       text,
  said_message    text,
  request_id      uuid
);
comment on type relevo.written_delivery is
  'A delivery that a claim''s holder, or whoever ends the claim, has just written: what relevo.record_outcomes has to know of it.';
comment on column relevo.written_delivery.due_at is 'When an open one is to be tried again.';
comment on column relevo.written_delivery.is_answer is 'Whether the push service said this, so that it counts in the project''s tallies.';
comment on column relevo.written_delivery.has_failed is 'Whether this goes among the failed attempts.';
comment on column relevo.written_delivery.error_code is 'The delivery''s own, which may be from before; said_code is what was said now.';

-- Written by `make migration` from sql/functions; what stands above this line is yours.

set local check_function_bodies = off;

-- Ends some of what is still open in an old month and not claimed, chunk by chunk, and returns how many deliveries it took out of the queues.
-- Those of deleted events count, too, so that a caller that repeats this comes to the end.
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

-- Counts events that fell due within the same hour, each for some phones, and returns the counts as of the first of them; the nil UUID stands
-- for all phones. A stream is what one origin sends of one type, watched from its first event on. An event that was released counts for the
-- day, not for the hour: there the brake judges anew.
create or replace function relevo.count_events(events bigint[], installations uuid[], passed boolean)
  returns table (counted uuid[], in_hour float8[], busiest_day int[])
  language plpgsql volatile
as $$
#variable_conflict use_column
begin
  insert into relevo.event_streams (event_type, origin, known_since)
  select e.event_type, e.origin, min(e.due_at)
    from (select distinct u.id from unnest(events) as u(id)) g
    cross join lateral (select e.event_type, case when e.licitacion_id is null then 'app' else relevo.event_origin(e) end as origin,
                               greatest(e.scheduled_at, e.created_at) as due_at
                          from relevo.notification_events e where e.id = g.id offset 0) e
   where not exists (select from relevo.event_streams s where s.event_type = e.event_type and s.origin = e.origin)
   group by e.event_type, e.origin
   order by e.event_type, e.origin -- in one order for all: no deadlock
  on conflict (event_type, origin) do nothing;
  return query
  with due as materialized (
    select s.id as stream_id, s.releases, u.installation_id, min(e.due_at) as due_at, count(*)::int as events,
           count(*) filter (where h.event_id is null)::int as judged
      from unnest(events, installations) as u(event_id, installation_id)
      cross join lateral (select e.event_type, case when e.licitacion_id is null then 'app' else relevo.event_origin(e) end as origin,
                                 greatest(e.scheduled_at, e.created_at) as due_at
                            from relevo.notification_events e where e.id = u.event_id offset 0) e
      cross join lateral (select s.id, s.releases from relevo.event_streams s where s.event_type = e.event_type and s.origin = e.origin offset 0) s
      left join lateral (select h.event_id from relevo.held_events h where h.event_id = u.event_id offset 0) h on true
     group by s.id, s.releases, u.installation_id
  ), written as (
    insert into relevo.event_counts as c (stream_id, installation_id, hour_at, day, in_hour, hour_before, passed_today, busiest_day, releases)
    select d.stream_id, d.installation_id, date_bin('1 hour', d.due_at, 'epoch'), (d.due_at at time zone 'UTC')::date, d.judged, 0,
           case when passed then d.events else 0 end, 0, d.releases
      from due d
     order by d.stream_id, d.installation_id -- in one order for all: no deadlock
    on conflict (stream_id, installation_id) do update
       set hour_at = greatest(c.hour_at, excluded.hour_at), day = greatest(c.day, excluded.day), releases = excluded.releases,
           in_hour = excluded.in_hour + case when c.releases = excluded.releases and c.hour_at >= excluded.hour_at then c.in_hour else 0 end,
           hour_before = case when c.releases <> excluded.releases then 0
                              when c.hour_at >= excluded.hour_at then c.hour_before
                              when c.hour_at = excluded.hour_at - interval '1 hour' then c.in_hour
                              else 0 end,
           passed_today = excluded.passed_today + case when c.day >= excluded.day then c.passed_today else 0 end,
           busiest_day = case when c.day >= excluded.day then c.busiest_day -- half of it is forgotten within two weeks
                              else greatest(c.passed_today, c.busiest_day * 0.95 ^ least(1000, excluded.day - c.day))::int end
    returning c.installation_id, c.hour_at, c.in_hour, c.hour_before, c.busiest_day
  )
  select array_agg(w.installation_id), array_agg(relevo.count_of_hour(w.hour_at, w.in_hour, w.hour_before, f.due_at)), array_agg(w.busiest_day)
    from written w cross join (select min(d.due_at) as due_at from due d) f;
end
$$;

revoke all on function relevo.count_events from public;

-- Returns a new event's deadline; refuses one that has passed or lies before the event itself.
create or replace function relevo.check_deadline(until timestamptz, at timestamptz, place bigint) returns timestamptz
  language plpgsql stable
as $$
begin
  if until <= greatest(at, now()) then
    perform relevo.refuse_event(place, format('deadline_at must lie after now and after scheduled_at, got %s', until));
  end if;
  return until;
end
$$;

revoke all on function relevo.check_deadline from public;

-- Returns a time of an event, or refuses it by name; the place says which of many events it is. A time without a zone is refused: it would mean
-- something else in every session.
create or replace function relevo.event_time(event jsonb, name text, place bigint) returns timestamptz
  language plpgsql stable
as $$
declare
  given timestamptz;
begin
  if jsonb_typeof(event -> name) is not distinct from 'null' or not event ? name then
    return null;
  end if;
  if event ->> name ~* '^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])[T ]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,6})?)?(Z|[+-](0\d|1[0-4])(:?[0-5]\d)?)$' then
    given := (event ->> name)::timestamptz; -- there is such a day in every month: without a subtransaction
  else
    begin
      given := (event ->> name)::timestamptz;
    exception when others then
      given := null;
    end;
  end if;
  if given is null or event ->> name !~* '^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d(:?\d\d)?)$' then
    perform relevo.refuse_event(place, format('%s must be a time with its zone, such as 2026-11-15T09:00:00Z, got %s', name, left(event ->> name, 60)));
  end if;
  if given not between '2000-01-01Z' and '2200-01-01Z' then
    perform relevo.refuse_event(place, format('%s must lie between the years 2000 and 2200, got %s', name, given));
  end if;
  return given;
end
$$;

revoke all on function relevo.event_time from public;

-- Replaces the content of an event that has not started yet.
create or replace function relevo.change(event jsonb) returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  old relevo.notification_events;
  tried record;
begin
  perform relevo.check_event(event);
  if starts_with(event ->> 'type', 'relevo.') then
    perform relevo.refuse('type must not begin with relevo., which is for Relevo itself');
  end if;
  select n.* into old from relevo.notification_events n
   where n.event_type = event ->> 'type' and n.event_key = event ->> 'key' and n.state = 'waiting' and n.event_day is null for update;
  if not found then
    return false;
  end if;
  -- written as a new one would be, and then put in the old one's place
  select w.* into tried from relevo.write_events(jsonb_build_array(event || jsonb_build_object('key', 'changed ' || gen_random_uuid()))) w;
  update relevo.notification_events e
     set licitacion_id = n.licitacion_id, title = n.title, body = n.body, data = n.data, push = n.push, audience = n.audience, category = n.category,
         lane = n.lane, at_most_once = n.at_most_once, scheduled_at = n.scheduled_at, deadline_at = n.deadline_at, match_topics = n.match_topics,
         match_rubros = n.match_rubros, match_region = n.match_region, match_tipo = n.match_tipo, match_monto = n.match_monto,
         match_moneda = n.match_moneda, match_words = n.match_words, updated_at = now(),
         -- what it said before is known as the same event, too: at first, and the last nine times
         content_hash = concat_ws(' ', relevo.content_hash(event, n.scheduled_at, relevo.event_time(event, 'deadline_at', null)), left(old.content_hash, 8 * 65 - 1), case when length(old.content_hash) >= 8 * 65 then right(old.content_hash, 64) end)
    from relevo.notification_events n
   where e.id = old.id and n.id = tried.event_id;
  delete from relevo.event_audience where event_id = old.id;
  delete from relevo.event_owners where event_id = old.id;
  update relevo.event_audience set event_id = old.id where event_id = tried.event_id;
  update relevo.event_owners set event_id = old.id where event_id = tried.event_id;
  delete from relevo.notification_events where id = tried.event_id;
  perform relevo.wake('fanout');
  return true;
end
$$;

revoke all on function relevo.change from public;

-- Deletes events and as many of their deliveries as is quickly done; the reaper deletes the rest.
create or replace function relevo.delete_events(event_ids bigint[]) returns integer
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  gone relevo.notification_events;
  done record;
  open_days date[];
  most int := 5000;
  deleted int := 0;
begin
  -- of a month that is sealed nothing is deleted: it is in the archive already
  open_days := relevo.hold_open(array(select distinct e.event_day from relevo.notification_events e
                                       where e.id = any (event_ids) and e.event_day is not null));
  for gone in select e.* from relevo.notification_events e
               where e.id = any (event_ids) and (e.event_day is null or e.event_day = any (open_days))
               order by e.id for update loop -- in the order of all who write the same
    delete from relevo.notification_events e where e.id = gone.id;
    deleted := deleted + 1;
    continue when gone.event_day is null; -- never fanned out
    select * into done from relevo.delete_deliveries(gone.id, gone.event_day, null, most);
    most := greatest(most - done.deleted, 0);
    if not done.finished then
      insert into relevo.deleted_events (event_id, event_day, deleted_to) values (gone.id, gone.event_day, done.last_phone);
    end if;
  end loop;
  return deleted;
end
$$;

revoke all on function relevo.delete_events from public;

-- Deletes a person: the installation with all that leads to anybody, and what was said to it alone; a hash of its key stays, for dedup. Its
-- deliveries get a random key.
create or replace function relevo.forget_installation(installation uuid) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  known boolean;
  alone bigint[];
begin
  perform relevo.lock_personal_events(array[installation], null);
  delete from relevo.device_installations where installation_id = installation;
  known := found;
  alone := array(select a.event_id from relevo.event_audience a -- anew: one may have come meanwhile
                  where a.installation_id = installation
                    and not exists (select from relevo.event_audience o where o.event_id = a.event_id and o.installation_id <> installation));
  perform relevo.blank_events(alone, 'the installation was forgotten');
  delete from relevo.event_audience where installation_id = installation;
  return known or cardinality(alone) > 0;
end
$$;

revoke all on function relevo.forget_installation from public;

-- Deletes an owner: the installations, what was said to them or to the owner alone, and the name; returns how many installations there were.
create or replace function relevo.forget_owner(of_owner text) returns int
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  many int;
begin
  perform relevo.check_owner(of_owner);
  perform relevo.lock_personal_events(array(select i.installation_id from relevo.device_installations i where i.owner = of_owner), of_owner);
  select count(*) filter (where relevo.forget_installation(i.installation_id)) into many
    from (select i.installation_id from relevo.device_installations i where i.owner = of_owner order by i.installation_id for update) i;
  perform relevo.blank_events(array(
    select o.event_id from relevo.event_owners o
     where o.owner = of_owner and not exists (select from relevo.event_owners n where n.event_id = o.event_id and n.owner <> of_owner)),
    'its owner was forgotten');
  delete from relevo.event_owners where owner = of_owner;
  delete from relevo.event_completions where owner = of_owner;
  return many;
end
$$;

revoke all on function relevo.forget_owner from public;

-- Deletes an owner as far as one project goes: the installations there, and what its events said to them alone.
create or replace function relevo.forget_owner_in_project(of_owner text, of_project text) returns integer language plpgsql volatile security invoker
  set search_path = pg_catalog, pg_temp
as $$
declare
  phones uuid[];
  many int;
begin
  perform relevo.check_owner(of_owner);
  phones := array(select i.installation_id from relevo.device_installations i where i.owner = of_owner and i.project = of_project);
  perform relevo.lock_personal_events(phones, of_owner);
  select count(*) filter (where relevo.forget_installation(i.installation_id)) into many
    from (select i.installation_id from relevo.device_installations i
           where i.owner = of_owner and i.project = of_project order by i.installation_id for update) i;
  perform relevo.blank_events(array(
    select o.event_id from relevo.event_owners o
      join relevo.notification_events e on e.id = o.event_id and e.project = of_project
     where o.owner = of_owner and not exists (select from relevo.event_owners n where n.event_id = o.event_id and n.owner <> of_owner)),
    'its owner was forgotten');
  delete from relevo.event_owners o using relevo.notification_events e
   where o.owner = of_owner and e.id = o.event_id and e.project = of_project;
  delete from relevo.event_completions c using relevo.notification_events e
   where c.owner = of_owner and e.id = c.event_id and e.project = of_project;
  return many;
end
$$;

revoke all on function relevo.forget_owner_in_project from public;

-- Returns the installations of an owner, newest first, and whether each may receive pushes; no token among it.
create or replace function relevo.list_installations(of_owner text, most int default 100) returns jsonb
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  return relevo.list_installations_in_project(of_owner, null, most);
end
$$;

revoke all on function relevo.list_installations from public;

-- Returns the installations of an owner, newest first, those of one project if it is given, and whether each may receive pushes; no token
-- among it.
create or replace function relevo.list_installations_in_project(of_owner text, of_project text, most int) returns jsonb
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform relevo.check_owner(of_owner);
  if coalesce(most, 0) not between 1 and 1000 then
    perform relevo.refuse('most must be between 1 and 1000');
  end if;
  return coalesce((
    select jsonb_agg(jsonb_build_object('installation_id', i.installation_id, 'owner', i.owner, 'project', i.project, 'provider', i.provider,
             'platform', i.platform, 'locale', i.locale, 'opt_outs', to_jsonb(i.opt_outs), 'receives', relevo.may_receive(i),
             'why_not', relevo.why_not_allowed(i), 'registered_at', i.registered_at, 'updated_at', i.updated_at,
             'preferences', (select coalesce(jsonb_agg(p.name order by p.name), '[]') from relevo.notification_preferences p
                              where p.installation_id = i.installation_id and p.enabled)) order by i.seq desc)
      from (select * from relevo.device_installations i
             where i.owner = of_owner and (of_project is null or i.project = of_project) order by i.seq desc limit most) i), '[]');
end
$$;

revoke all on function relevo.list_installations_in_project from public;

-- Moves deliveries of events from one status to another in the counts, one each if no numbers are given; what keeps its status changes nothing.
create or replace function relevo.move_counts(events bigint[], formers text[], statuses text[], numbers int[] default '{}') returns void
  language plpgsql
as $$
begin
  insert into relevo.event_progress_deltas (event_id, status, deliveries)
  select u.event_id, s.status, sum(s.n)::int
    from unnest(events, formers, statuses, numbers) as u(event_id, former, status, n)
    cross join lateral (values (u.former, -coalesce(u.n, 1)), (u.status, coalesce(u.n, 1))) as s(status, n)
   group by u.event_id, s.status
  having sum(s.n) <> 0;
end
$$;

revoke all on function relevo.move_counts from public;

-- Returns for some events how many deliveries of which status their counts lack, or have too many (less than 0). What changes a delivery writes
-- its change of the counts in the same transaction, so that one snapshot sees both or neither.
create or replace function relevo.wrong_counts(events bigint[]) returns table (event_id bigint, status text, missing bigint)
  language sql stable
as $$
  select c.event_id, c.status, sum(c.n)::bigint
    from (select e.id as event_id, d.status, d.n
            from unnest(events) as u(id)
            join relevo.notification_events e on e.id = u.id
            cross join lateral (select d.status, count(*) as n from relevo.notification_deliveries d
                                 where d.event_day = e.event_day and d.notification_event_id = e.id group by d.status) d
          union all
          select p.event_id, p.status, -p.deliveries from relevo.event_progress p where p.event_id = any (events)
          union all
          select d.event_id, d.status, -d.deliveries from relevo.event_progress_deltas d where d.event_id = any (events)) c
   group by c.event_id, c.status
  having sum(c.n) <> 0
$$;

revoke all on function relevo.wrong_counts from public;

-- Returns in what an event differs from the one that is there, whose hash is another; null if they say the same nevertheless.
create or replace function relevo.content_difference(event jsonb, id_of_event bigint) returns text
  language plpgsql
as $$
declare
  old relevo.notification_events;
  hashes text;
  tried bigint;
  found_out text[];
  at timestamptz;
  until timestamptz;
begin
  select n.* into old from relevo.notification_events n where n.id = id_of_event;
  select coalesce(old.content_hash, (select k.content_hash from relevo.event_keys k where k.event_id = id_of_event)) into hashes;
  -- the form of hashes before 0.3
  if strpos(hashes, encode(sha256(convert_to(jsonb_strip_nulls(event - 'on_conflict')::text, 'UTF8')), 'hex')) > 0 then
    return null;
  end if;
  if old.id is null then
    return '; it was archived, so what differs is not known';
  end if;
  at := relevo.event_time(event, 'scheduled_at', null);
  until := coalesce(relevo.event_time(event, 'deadline_at', null), old.scheduled_at + interval '1 second' * coalesce(
    (event ->> 'ttl_s')::numeric::int, (select t.ttl_s from relevo.event_types t where t.event_type = event ->> 'type')));
  begin -- written as a new one would be, and undone
    select w.event_id into tried from relevo.write_events(jsonb_build_array(
      event - array['scheduled_at', 'deadline_at', 'ttl_s'] || jsonb_build_object('key', 'compared ' || gen_random_uuid()))) w;
    select relevo.name_differences(relevo.event_said(old), relevo.event_said(n)) into found_out
      from relevo.notification_events n where n.id = tried;
    raise exception using errcode = 'RLV00', message = 'undone';
  exception when sqlstate 'RLV00' then
    null;
  end;
  found_out := found_out || case when coalesce(at, old.created_at) <> old.scheduled_at then array['scheduled_at differs'] end
                         || case when until is distinct from old.deadline_at then array['deadline_at differs'] end;
  return ': ' || array_to_string(nullif(found_out, '{}'), '; ');
end
$$;

revoke all on function relevo.content_difference from public;

-- Deletes up to so many of an event's deliveries, and their failed attempts.
create or replace function relevo.delete_deliveries(id_of_event bigint, of_day date, from_phone uuid, most int,
                                                out deleted int, out last_phone uuid, out finished boolean)
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set plan_cache_mode = force_generic_plan
as $$
declare
  keys bigint[];
  rows int;
begin
  delete from relevo.due_chunks q
   where q.id = any (array(select n.id from relevo.due_chunks n where n.event_id = id_of_event order by n.id limit least(most, 1000)));
  get diagnostics deleted = row_count;
  finished := deleted < least(most, 1000);
  select coalesce(array_agg(n.id), '{}'), coalesce((array_agg(n.installation_id order by n.installation_id desc))[1], from_phone)
    into keys, last_phone
    from (select d.id, d.installation_id from relevo.notification_deliveries d
           where d.event_day = of_day and d.notification_event_id = id_of_event
             and d.installation_id >= coalesce(from_phone, '00000000-0000-0000-0000-000000000000')
           order by d.installation_id limit most) n;
  delete from relevo.dead_letters l where l.event_day = of_day and l.delivery_id = any (keys);
  get diagnostics rows = row_count;
  deleted := deleted + rows;
  -- locked in the order of every writer, so that a settle under way and this do not wait for each other
  perform from relevo.notification_deliveries d where d.event_day = of_day and d.id = any (keys) order by d.event_day, d.id for update;
  delete from relevo.dead_letters l where l.event_day = of_day and l.delivery_id = any (keys); -- one that such a settle wrote
  delete from relevo.failed_attempts f where f.event_day = of_day and f.delivery_id = any (keys);
  delete from relevo.notification_deliveries d where d.event_day = of_day and d.id = any (keys);
  get diagnostics rows = row_count;
  deleted := deleted + rows;
  finished := finished and cardinality(keys) < most;
  if finished then
    -- the changes first: a reaper that is folding them is waited for, and its sums go next
    delete from relevo.event_progress_deltas p where p.event_id = id_of_event;
    delete from relevo.event_progress p where p.event_id = id_of_event;
  end if;
end
$$;

revoke all on function relevo.delete_deliveries from public;

-- Deletes up to so many rows of what is left of one deleted event, skipping those that another reaper holds; returns how many, 0 if there is
-- none. Of a month on its way to the archive nothing is deleted.
create or replace function relevo.delete_leftovers(most int) returns int
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  gone relevo.deleted_events;
  done record;
begin
  select d.* into gone from relevo.deleted_events d order by d.event_id limit 1 for update skip locked;
  if not found then
    return 0;
  end if;
  if cardinality(relevo.hold_open(array[gone.event_day])) = 0 then
    delete from relevo.deleted_events d where d.event_id = gone.event_id;
    return 1;
  end if;
  select * into done from relevo.delete_deliveries(gone.event_id, gone.event_day, gone.deleted_to, most);
  if done.finished then
    delete from relevo.deleted_events d where d.event_id = gone.event_id;
  else
    update relevo.deleted_events d set deleted_to = done.last_phone where d.event_id = gone.event_id;
  end if;
  return greatest(done.deleted, 1);
end
$$;

revoke all on function relevo.delete_leftovers from public;

-- Reads events as they are given: their place, what they say, the keys they are known by, their content's hash, phones and times.
create or replace function relevo.given_events(events jsonb)
  returns table (ord bigint, event jsonb, event_type text, keys text[], hash text, matching jsonb, installations uuid[], at timestamptz, until timestamptz)
  language sql stable
as $$
  select g.ord, g.event, g.event ->> 'type' as event_type,
         -- its own, and the one by which it is known if it was personal and is old or forgotten
         array[g.event ->> 'key', relevo.hidden_key(g.event ->> 'type', g.event ->> 'key')] as keys,
         case when g.event ->> 'audience' in ('installations', 'owners') and not g.event ? 'on_conflict' -- most are: as content_hash does it
              then encode(sha256(convert_to(jsonb_strip_nulls(g.event)::text, 'UTF8')), 'hex')
              else relevo.content_hash(g.event, g.at, g.until) end as hash,
         g.event -> 'matching' as matching,
         case when jsonb_typeof(g.event -> 'installations') is distinct from 'array' then '{}'
              when jsonb_array_length(g.event -> 'installations') = 1 then array[(g.event -> 'installations' ->> 0)::uuid] -- most name one
              else array(select i.installation::uuid from jsonb_array_elements_text(g.event -> 'installations') as i(installation)) end as installations,
         g.at, g.until
    from (select g.ord, g.event,
                 coalesce(case when g.event ? 'scheduled_at' then relevo.event_time(g.event, 'scheduled_at', g.place) end, now()) as at,
                 case when g.event ? 'deadline_at' then relevo.event_time(g.event, 'deadline_at', g.place) end as until
            from (select j.event, j.ord, case when jsonb_array_length(events) > 1 then j.ord end as place -- of one alone nobody asks which
                    from jsonb_array_elements(events) with ordinality as j(event, ord)) g offset 0) g
$$;

revoke all on function relevo.given_events from public;

-- Locks the events that are for one of some installations alone, or for an owner alone. Before the phones, as a settle does, which notes an
-- event's first push and then disables tokens: no deadlock.
create or replace function relevo.lock_personal_events(installations uuid[], of_owner text) returns void
  language plpgsql volatile
as $$
begin
  perform from relevo.notification_events e
    where e.id = any (array(
            select a.event_id from relevo.event_audience a
             where a.installation_id = any (installations)
               and not exists (select from relevo.event_audience o where o.event_id = a.event_id and o.installation_id <> a.installation_id)
            union all
            select o.event_id from relevo.event_owners o
             where o.owner = of_owner and not exists (select from relevo.event_owners n where n.event_id = o.event_id and n.owner <> of_owner)))
    order by e.id for update;
end
$$;

revoke all on function relevo.lock_personal_events from public;

-- Writes events, and returns for each whether it is new, and if not, whether it says the same; one that another transaction made meanwhile has
-- no id here.
-- How it goes: read what is given, look each up by its key among events and archived keys, number the new ones, insert them with their phones
-- and owners.
create or replace function relevo.write_events(events jsonb) returns table(event_id bigint, created boolean, same_content boolean, unknown_installations uuid[])
  language plpgsql
  set jit = off
  set enable_seqscan = off
as $$
declare
  many boolean := jsonb_array_length(events) > 1; -- of one alone nobody asks which
begin
  return query
  with given as materialized (
    select * from relevo.given_events(events)
  ), looked_up as (
    select g.*, coalesce(n.id, k.event_id) as known_id, strpos(nullif(coalesce(n.content_hash, k.content_hash), ''), g.hash) > 0 as same_hash
      from given g
      left join lateral (select n.id, n.content_hash from relevo.notification_events n
                          where n.event_type = g.event_type and n.event_key = any (g.keys) limit 1) n on true
      left join lateral (select k.event_id, k.content_hash from relevo.event_keys k
                          where n.id is null and k.event_type = g.event_type and k.event_key = any (g.keys) limit 1) k on true
  ), numbered as materialized (
    select l.*, case when l.known_id is null then nextval('relevo.notification_events_id_seq') end as new_id
      from (select * from looked_up order by ord) l
  ), made as (
    insert into relevo.notification_events as n (id, event_type, event_key, licitacion_id, title, body, data, push, audience, category,
      lane, at_most_once, scheduled_at, deadline_at, match_topics, match_rubros, match_region, match_tipo, match_monto, match_moneda, match_words,
      content_hash)
    select m.new_id, m.event_type, m.keys[1], (m.event ->> 'licitacion_id')::numeric::bigint, coalesce(m.event ->> 'title', ''),
           coalesce(m.event ->> 'body', ''), coalesce(nullif(m.event -> 'data', 'null'), '{}'), coalesce(nullif(m.event -> 'push', 'null'), '{}'),
           case m.event ->> 'audience' when 'owners' then 'installations' else m.event ->> 'audience' end, m.event ->> 'category',
           coalesce(m.event ->> 'lane', t.lane, 'bulk'), coalesce((m.event ->> 'at_most_once')::boolean, t.at_most_once, false), m.at,
           relevo.check_deadline(coalesce(m.until, m.at + coalesce((m.event ->> 'ttl_s')::numeric::int, t.ttl_s) * interval '1 second'), m.at,
                                   case when many then m.ord end),
           case when m.event -> 'topics' <> 'null' then array(select distinct jsonb_array_elements_text(m.event -> 'topics')) else '{}' end,
           case when m.matching -> 'rubros' <> 'null' then array(select jsonb_array_elements_text(m.matching -> 'rubros')) else '{}' end,
           relevo.region_key(m.matching ->> 'region'), m.matching ->> 'tipo', (m.matching ->> 'monto')::numeric, m.matching ->> 'moneda',
           relevo.words(m.matching ->> 'text'), m.hash
      from numbered m
      left join lateral (select t.* from relevo.event_types t where t.event_type = m.event_type offset 0) t on true
     where m.new_id is not null
     order by m.event_type collate "C", m.keys[1] collate "C" -- in the order of all who write the same: nobody waits crosswise
    on conflict (event_type, event_key) do nothing
    returning n.id
  ), named as (
    insert into relevo.event_audience (event_id, installation_id)
    select m.new_id, i.installation
      from numbered m
      cross join lateral unnest(case when cardinality(m.installations) > 1 then array(select distinct unnest(m.installations))
                                     else m.installations end) as i(installation)
     where (m.new_id in (select w.id from made w)) is true -- looked up in a hash: "is true" keeps it from becoming a join
  ), owned as (
    insert into relevo.event_owners (event_id, owner)
    select m.new_id, o.owner
      from numbered m
      cross join lateral jsonb_array_elements_text(nullif(m.event -> 'owners', 'null')) as o(owner)
     where (m.new_id in (select w.id from made w)) is true
    on conflict do nothing
  )
  select coalesce(m.known_id, case when (m.new_id in (select w.id from made w)) is true then m.new_id end),
         m.known_id is null, m.known_id is null or m.same_hash,
         case when cardinality(m.installations) > 0 then
           array(select i.installation
                   from unnest(m.installations) as i(installation)
                   left join lateral (select true as known from relevo.device_installations d
                                       where d.installation_id = i.installation offset 0) d on true
                  where d.known is null)
           else '{}' end
    from numbered m
   order by m.ord;
end
$$;

revoke all on function relevo.write_events from public;

-- Ends events whose deadline passed before they fanned out.
create or replace function relevo.expire_events(late bigint[], at timestamptz) returns void language sql volatile
as $$
  update relevo.notification_events e
     set state = 'cancelled', ended_at = at, end_reason = 'its deadline passed before it fanned out', updated_at = at
   where e.id = any (late)
$$;

revoke all on function relevo.expire_events from public;

-- Fans out small personal events, which the caller has picked and locked, in one go; only to phones of their project if they have one. Returns
-- the events and phones of the deliveries if they are watched, and no row if today's month is sealed.
-- How it goes: find the phones, insert deliveries, queue them in chunks, mark the events as fanned, count.
create or replace function relevo.fan_out_events(of_events bigint[], watched boolean, given_at timestamptz)
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

revoke all on function relevo.fan_out_events from public;

-- Locks the event whose turn it is to fan out (urgent first, then by project and by event; none while fan-out is paused) and fans it out. `how`
-- says what was done: `together` with other small personal events, or a `slice` of it; `sealed` if its month is; `picked` if nothing was made,
-- because the caller has to judge it first or wants nothing made at once. With `unseen`, where the caller commits before it reads, an error
-- undoes all that it would have had to judge.
create or replace function relevo.fan_out_next(after_project text, given_up bigint[], apart bigint[], aside bigint[], few int, most_events int, most int,
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
  e := relevo.next_event('urgent', after_project, given_up, at);
  if e.id is null then
    e := relevo.next_event('bulk', after_project, given_up, at);
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
      from relevo.fan_out_small(e.lane, e.project, due_hour, few, most_events, most, given_up || apart, watched, given_at) f;
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

-- Fans out small personal events together, up to so many events and deliveries, in one go; those past their deadline end. Of watched ones each
-- phone is counted with its event. `created` is null if today's month is sealed: then nothing was made.
create or replace function relevo.fan_out_small(of_lane text, of_project text, due_hour timestamptz, few int, most_events int, most int, left_out bigint[],
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
            from relevo.pick_small_events(of_lane, of_project, due_hour, few, most_events, left_out, at) s) p
   where p.so_far <= most;
  if late <> '{}' then
    perform relevo.expire_events(late, at);
  end if;
  created := 0;
  if fanned <> '{}' then
    created := null;
    select f.* into created, events, installations from relevo.fan_out_events(fanned, watched, given_at) f;
    if created > 0 then
      perform relevo.wake('dispatch');
      if watched then
        select c.* into counted, in_hour, busiest_day from relevo.count_events(events, installations, true) c;
      end if;
    end if;
  end if;
  return next;
end
$$;

revoke all on function relevo.fan_out_small from public;

-- Returns up to which sequence number the next slice of a matching event reaches: as far as there are so many candidates, found by windows that
-- grow while they hold few. Each window is one index lookup per bucket, so that an event with many words does not read all that is left of
-- each.
create or replace function relevo.matching_window(buckets text[], after_seq bigint, upto_seq bigint, most int) returns bigint
  language plpgsql stable
as $$
declare
  wide bigint := most;
  last bigint := after_seq;
  met bigint := 0;
  here bigint;
begin
  while last < upto_seq and met < most loop
    select count(*) into here
      from (select from relevo.preference_index x
             where x.bucket = any (buckets) and x.seq > last and x.seq <= last + wide
             limit 4 * most) c;
    if here = 4 * most and wide > 1 then
      wide := greatest(wide / 4, 1);
      continue;
    end if;
    met := met + here;
    last := last + wide;
    wide := case when here * 8 <= most then wide * 8 else wide end;
  end loop;
  return least(last, upto_seq);
end
$$;

revoke all on function relevo.matching_window from public;

-- Locks small personal events that are fanned out together, up to so many: those of one project in the order of the line, then those of others.
create or replace function relevo.pick_small_events(of_lane text, of_project text, due_hour timestamptz, few int, most int, left_out bigint[], at timestamptz)
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

revoke all on function relevo.pick_small_events from public;

-- Returns whether an event's push was sent to this token by another installation, which had it then. One that is still on its way does not
-- count: should it fail, this one must arrive.
create or replace function relevo.was_sent_to_token(of_day date, of_event bigint, by_other_than uuid, token text, since timestamptz) returns boolean
  language plpgsql stable
as $$
begin
  return exists (select from relevo.moved_tokens m
                   join relevo.notification_deliveries d
                     on d.event_day = of_day and d.notification_event_id = of_event and d.installation_id = m.installation_id
                  where m.token_key = hashtextextended(token, 0) and m.installation_id <> by_other_than and m.moved_at >= since
                    and d.status in ('sent', 'ok', 'unconfirmed', 'unknown'));
end
$$;

revoke all on function relevo.was_sent_to_token from public;

-- Returns what a claim holds, like the claim did, after the answer to its COMMIT was lost.
create or replace function relevo.adopt_claim(claim uuid, at timestamptz)
  returns table (event_day date, event_id bigint, event_type text, at_most_once boolean, attempt_count smallint, lapse_count smallint,
                 deadline_at timestamptz, seconds_left float8, created_at timestamptz, ids bigint[], installations uuid[], tokens text[],
                 versions int[], platforms text[], locales text[], obstacles text[], lease_ms int)
  language sql stable
as $$
  select l.event_day, l.event_id, l.event_type, l.at_most_once, l.attempt_count, l.lapse_count, l.deadline_at, l.seconds_left, l.created_at,
         l.ids, l.installations, l.tokens, l.versions, l.platforms, l.locales, l.obstacles, l.lease_ms
    from relevo.claims c
    cross join lateral relevo.look_up_phones(
      array(select row(0, d.project, d.lane, c.due_at, d.event_day, d.notification_event_id, d.event_type, d.created_at, d.attempt_count,
                       d.lapse_count, d.last_error_code is not null, array[d.id], array[d.installation_id])::relevo.due_chunks
              from unnest(c.days, c.ids) with ordinality as k(event_day, id, n)
              cross join lateral (select * from relevo.notification_deliveries d
                                   where d.event_day = k.event_day and d.id = k.id and d.status in ('pending', 'retryable') offset 0) d
             order by k.n), relevo.now(at), c.lease_ms) l
   where c.token = claim
$$;

revoke all on function relevo.adopt_claim from public;

-- Claims what is due in one lane of a project, oldest first: chunks from the head of the queue as long as they share one lease, up to so many
-- deliveries, the last chunk in part. A chunk whose claims lapsed too often is claimed alone. Only what is taken is locked: walking along the
-- index locks nothing, and each chunk is deleted by its key, unless another holds it. It begins at `since`, where the first chunk was seen:
-- while somebody holds a snapshot, the rows of all that was sent meanwhile still stand before that.
create or replace function relevo.claim_due(claim uuid, worker text, of_cycle text, of_project text, of_lane text, most int, given_at timestamptz,
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
      perform relevo.put_back(chunk, chunk.ids[room + 1:], chunk.installations[room + 1:]);
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
  perform relevo.write_claim(claim, worker, of_cycle, lease, at, taken);
  return query select * from relevo.look_up_phones(taken, at, lease);
end
$$;

revoke all on function relevo.claim_due from public;

-- Claims a few deliveries for a probe out of the oldest due ones: first those with nothing against their phone, event and past.
create or replace function relevo.claim_probe(claim uuid, worker text, of_cycle text, of_project text, of_lane text, most int, given_at timestamptz,
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
      perform relevo.put_back(chunk, array_agg(u.id), array_agg(u.installation_id))
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
  perform relevo.write_claim(claim, worker, of_cycle, lease, at, taken);
  return query
    select l.event_day, l.event_id, l.event_type, l.at_most_once, l.attempt_count, l.lapse_count, l.deadline_at, l.seconds_left, l.created_at,
           l.ids, l.installations, l.tokens, l.versions, l.platforms, l.locales, l.obstacles, l.lease_ms
      from relevo.look_up_phones(taken, at, lease) l;
end
$$;

revoke all on function relevo.claim_probe from public;

-- Returns the lanes that have something new, those of the given ones that still have something, and the next ones along the queue's index; of
-- each when the first thing falls due, and in how many seconds it may be sent. Every row has the last id given out in the queue, the oldest
-- transaction under way, the next one to come, and how far the walk along the index went. No row while dispatch is paused.
create or replace function relevo.due_lanes(given_at timestamptz, after_id bigint, most_new int, again_projects text[], again_lanes text[],
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

revoke all on function relevo.due_lanes from public;

-- Leases a worker's fair share of a project's connections before anything is due, and returns what read_project does, with the event types
-- that others compose. No row if somebody else holds the project just now, or others leave no connections. It does not wait for the disk, as a
-- lease need not.
create or replace function relevo.lease_ahead(of_project text, worker text, most int, lease_ms int)
  returns table (connections int, composed text[], project text, urgent_tokens double precision, bulk_tokens double precision, filled_at timestamptz,
                 rate_share double precision, rest_until timestamptz, breaker text, breaker_reason text, breaker_by text,
                 breaker_since timestamptz, probe_at timestamptz, trips int, failures int, pruning_stopped_at timestamptz, watched text[],
                 refused boolean, now timestamptz, version text)
  language plpgsql
  set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  workers int;
  share int;
  others_compose text[];
begin
  perform set_config('synchronous_commit', 'off', true);
  perform from relevo.projects p where p.project = of_project for no key update skip locked;
  if not found then
    return;
  end if;
  select count(distinct w.worker_id) filter (where 'dispatch' = any (w.cycles)),
         coalesce(array_agg(distinct c.event_type) filter (where c.event_type is not null and w.worker_id <> worker), '{}')
    into workers, others_compose
    from relevo.workers w
    left join lateral unnest(w.composers) as c(event_type) on true
   where relevo.is_alive(w);
  share := least(greatest(1, most / greatest(1, workers)),
                 most - coalesce((select sum(o.connections)::int from relevo.push_connections o
                                   where o.project = of_project and o.worker_id <> worker and o.leased_until > now()), 0));
  if share < 1 then
    return;
  end if;
  insert into relevo.push_connections as c (project, worker_id, connections, leased_until)
  values (of_project, worker, share, now() + lease_ms * interval '1 millisecond')
  on conflict (project, worker_id) do update set connections = excluded.connections, leased_until = excluded.leased_until;
  return query select share, others_compose, l.* from relevo.read_project(of_project, null) l;
end
$$;

revoke all on function relevo.lease_ahead from public;

-- Returns what locking a project returns, and the version of its row; by index lookup, whatever the statistics say.
create or replace function relevo.read_project(of_project text, given_at timestamptz)
  returns table (project text, urgent_tokens double precision, bulk_tokens double precision, filled_at timestamptz, rate_share double precision,
                 rest_until timestamptz, breaker text, breaker_reason text, breaker_by text, breaker_since timestamptz, probe_at timestamptz,
                 trips int, failures int, pruning_stopped_at timestamptz, watched text[], refused boolean, now timestamptz, version text)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
  return query
    select p.project, p.urgent_tokens, p.bulk_tokens, p.filled_at, p.rate_share, p.rest_until, p.breaker, p.breaker_reason, p.breaker_by,
           p.breaker_since, p.probe_at, p.trips, p.failures, p.pruning_stopped_at,
           array(select c.answered_by from relevo.credential_answers c where c.project = p.project),
           exists (select from relevo.refused_events r where r.project = p.project and not r.taken_since),
           coalesce(given_at, clock_timestamp()), p.xmin::text
      from relevo.projects p where p.project = of_project;
end
$$;

revoke all on function relevo.read_project from public;

-- Claims sent deliveries of a project whose receipts are due, the longest due first: as many requests' worth as fit, at least one; a row for
-- each.
create or replace function relevo.claim_awaited(
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
    select claim, worker, 'receipt', relevo.now(given_at), claim_awaited.lease_ms,
           relevo.now(given_at) + claim_awaited.lease_ms * interval '1 millisecond', array_agg(u.event_day), array_agg(u.id)
      from taken t cross join unnest(t.days, t.ids) as u(event_day, id)
    having count(*) > 0
  )
  select t.sent_at, t.days, t.ids, t.installations, t.tickets, t.versions, t.attempts from taken t order by t.look_at, t.id;
end
$$;

revoke all on function relevo.claim_awaited from public;

-- Confirms all that a claim of receipts holds, ends it, and returns how many deliveries that were. Writes nothing once the claim was taken back
-- (0), or while it does not hold just as many as were asked about (null): then each answer is settled by itself.
create or replace function relevo.settle_confirmed(claim uuid, asked int, given_at timestamptz) returns int
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

revoke all on function relevo.settle_confirmed from public;

-- Writes what receipts say of deliveries that the claim holds, ends the claim, and returns how many became what; `sent` are those whose receipt
-- is missing and asked for again. Answers come in sorts, as in a settle; `waiting` is what is said of a receipt that is not there yet.
create or replace function relevo.settle_receipts(
  claim uuid, of_days date[], of_ids bigint[], kinds int[],
  sort_statuses text[], sort_spent int[], sort_paced boolean[], sort_codes text[], sort_messages text[], sort_floors_ms bigint[],
  most_attempts int, base_ms bigint, max_ms bigint, jitter_ms bigint, receipt_ms bigint, give_up_ms bigint, given_at timestamptz)
  returns table (status text, deliveries int)
  language plpgsql volatile
  set enable_sort = on
as $$
declare
  at timestamptz := relevo.now(given_at);
  pause_ms bigint := (select max(s.floor_ms) from unnest(sort_statuses, sort_floors_ms) as s(said, floor_ms) where s.said = 'waiting');
  held_ids bigint[];
  over_days date[];
  over_ids bigint[];
  missing int;
  written relevo.written_delivery[];
begin
  -- A reaper at work on the claim is waited for; it may have ended it.
  perform from relevo.claims c where c.token = claim for no key update;
  if not found then
    return;
  end if;

  -- What is missing is asked for later: each look comes twice as long after the push as the one before, the last one shortly before receipts
  -- are cleared. Then it is over. What was not asked for at all keeps its time.
  with taken as (
    delete from relevo.awaited_receipts r where r.claim_token = claim returning r.*
  ), member as materialized (
    select u.*, t.project, t.look_at, t.sent_at, (u.id in (select a.id from unnest(of_ids) as a(id))) is true as was_asked_for,
           (u.id in (select a.id from unnest(of_ids, kinds) as a(id, kind) where sort_statuses[a.kind] <> 'waiting')) is true as is_answered
      from taken t
      cross join unnest(t.days, t.ids, t.installations, t.tickets, t.versions, t.attempts)
        as u(event_day, id, installation_id, ticket_id, token_version, attempt_count)
  ), later as materialized (
    select m.*, m.was_asked_for and at >= m.sent_at + give_up_ms * interval '1 millisecond' as is_over,
           case when not m.was_asked_for then m.look_at
                when pause_ms > 0 then at + pause_ms * interval '1 millisecond'
                when at >= m.sent_at + give_up_ms * interval '0.958 millisecond' then m.sent_at + give_up_ms * interval '1 millisecond'
                else least(m.sent_at + 2 * greatest(at - m.sent_at, receipt_ms * interval '1 millisecond'),
                           m.sent_at + give_up_ms * interval '0.958 millisecond') end as next_look_at
      from member m where not m.is_answered
  ), put_back as (
    insert into relevo.awaited_receipts (project, look_at, sent_at, days, ids, installations, tickets, versions, attempts)
    select l.project, l.next_look_at, l.sent_at, array_agg(l.event_day), array_agg(l.id), array_agg(l.installation_id), array_agg(l.ticket_id),
           array_agg(l.token_version), array_agg(l.attempt_count)
      from (select l.*, (row_number() over (partition by l.project, l.next_look_at, l.sent_at) - 1) / 100 as piece from later l where not l.is_over) l
     group by l.project, l.next_look_at, l.sent_at, l.piece
  )
  select (select array_agg(m.id) from member m), array_agg(l.event_day) filter (where l.is_over), array_agg(l.id) filter (where l.is_over),
         count(*) filter (where not l.is_over)
    into held_ids, over_days, over_ids, missing
    from later l;

  -- A retry gets its time here, and its status: it may be the last, or come too late.
  with sort as materialized ( -- one chance for each sort: what failed together is tried again together
    select o.*, random() as chance
      from unnest(sort_statuses, sort_spent, sort_paced, sort_codes, sort_messages, sort_floors_ms)
        with ordinality as o(said, spent, paced, code, message, floor_ms, kind)
     union all
    select 'unconfirmed', 0, false, null, null, 0, 0, 0
  ), answer as materialized (
    select a.event_day, a.id, s.*
      from (select * from unnest(of_days, of_ids, kinds) as u(event_day, id, kind)
             where (u.id in (select h.id from unnest(held_ids) as h(id))) is true
             union all
            select o.event_day, o.id, 0 from unnest(over_days, over_ids) as o(event_day, id)) a
      join sort s on s.kind = a.kind
     where s.said <> 'waiting'
     order by a.event_day, a.id -- every writer locks deliveries in this order: no deadlock
  ), verdict as materialized (
    select a.*, g.former_attempts, g.retry_at,
           case a.said when 'retryable' then relevo.retry_status(a.paced, greatest(g.former_attempts + a.spent, 0), g.of_attempts, g.retry_at, g.deadline_at)
                       else a.said end as final_status
      from answer a
      left join lateral (select d.attempt_count as former_attempts, coalesce(t.max_attempts, most_attempts) as of_attempts,
                                at + case when a.paced
                                  then relevo.retry_delay(d.attempt_count, coalesce(t.retry_base_ms, base_ms),
                                                          coalesce(t.retry_max_ms, greatest(max_ms, t.retry_base_ms)),
                                                          coalesce(t.retry_jitter_ms, jitter_ms), a.floor_ms, a.chance)
                                  else a.floor_ms * interval '1 millisecond' end as retry_at,
                                (select e.deadline_at from relevo.notification_events e where e.id = d.notification_event_id) as deadline_at
                           from relevo.notification_deliveries d
                           left join relevo.event_types t on t.event_type = d.event_type
                          where a.said = 'retryable' and d.event_day = a.event_day and d.id = a.id
                         offset 0) g on true
  ), done as (
    update relevo.notification_deliveries d
       set status = v.final_status,
           attempt_count = greatest(d.attempt_count + v.spent, 0),
           lapse_count = case v.said when 'retryable' then 0 else d.lapse_count end,
           completed_at = case when v.final_status not in ('pending', 'retryable') then at end,
           updated_at = at,
           last_error_code = coalesce(v.code, d.last_error_code),
           last_error_message = case when v.code is not null then v.message else coalesce(v.message, d.last_error_message) end,
           provider_receipt_id = case v.said when 'unconfirmed' then d.provider_receipt_id else d.provider_ticket_id end
      from verdict v
     where d.event_day = any (array[v.event_day]) and d.id = v.id and d.status = 'sent'
    returning d.*, v.said, v.former_attempts, v.retry_at, v.code, v.message
  )
  select array_agg(row(w.event_day, w.id, w.notification_event_id, w.project, w.installation_id, w.provider_ticket_id, w.token_version,
                       case w.said when 'retryable' then w.former_attempts else w.attempt_count end, 'sent', w.status,
                       case when w.status in ('pending', 'retryable') then w.retry_at end, w.said <> 'unconfirmed',
                       w.said in ('retryable', 'invalid', 'failed'), w.last_error_code, w.code, w.message, null)::relevo.written_delivery)
    into written from done w;

  perform relevo.record_outcomes(written, 'receipt', null, at);
  delete from relevo.claims c where c.token = claim;
  return query
    select w.status, count(*)::int from unnest(written) w group by w.status
     union all
    select 'sent', missing where missing > 0;
end
$$;

revoke all on function relevo.settle_receipts from public;

-- Returns the time to go by: what a test gives, else the start of the transaction. It is inlined, so a plan sees the coalesce itself.
create or replace function relevo.now(at timestamptz default null) returns timestamptz
  language sql stable parallel safe
  return coalesce(at, now());

revoke all on function relevo.now from public;

-- Wakes a cycle, if it sleeps.
create or replace function relevo.wake(cycle_name text) returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  called text[];
begin
  if coalesce(current_setting('relevo.wake', true), '') = 'off' then
    return; -- so wished, as by who is going to PREPARE TRANSACTION, where no NOTIFY may be
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    perform pg_notify('relevo_wake', cycle_name); -- who sleeps now is not to be seen from here: all are asked
    return;
  end if;
  if not exists (select from relevo.cycle_state s where s.cycle = cycle_name and s.source = '' and s.asleep) then
    return;
  end if;
  called := array(
    select w.worker_id from relevo.workers w
     where cycle_name = any (w.asleep) and relevo.is_alive(w) and w.stopping_at is null and w.wakeups = 'listening'
     order by md5(w.worker_id || pg_current_xact_id()::text)
     limit 2);
  if called = '{}' then -- nobody is known to hear it: all are asked
    perform pg_notify('relevo_wake', cycle_name);
  else
    perform pg_notify('relevo_wake', cycle_name || ' ' || c.worker_id) from unnest(called) as c(worker_id);
  end if;
end
$$;

revoke all on function relevo.wake from public;

-- Wakes a cycle, whether it is known to sleep or not.
create or replace function relevo.wake_now(cycle_name text) returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  called text[];
begin
  if coalesce(current_setting('relevo.wake', true), '') = 'off' then
    return; -- so wished, as by who is going to PREPARE TRANSACTION, where no NOTIFY may be
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    perform pg_notify('relevo_wake', cycle_name); -- who sleeps now is not to be seen from here: all are asked
    return;
  end if;
  called := array(
    select w.worker_id from relevo.workers w
     where cycle_name = any (w.cycles) and relevo.is_alive(w) and w.stopping_at is null and w.wakeups = 'listening'
     order by cycle_name = any (w.asleep) desc, md5(w.worker_id || pg_current_xact_id()::text)
     limit 2);
  if called = '{}' then -- nobody is known to hear it: all are asked
    perform pg_notify('relevo_wake', cycle_name);
  else
    perform pg_notify('relevo_wake', cycle_name || ' ' || c.worker_id) from unnest(called) as c(worker_id);
  end if;
end
$$;

revoke all on function relevo.wake_now from public;

-- Journals the requests of a wave, which is what the claim holds next, if nothing keeps it from being sent; else it writes nothing and says so.
-- Each request is given by the places of its first and last delivery in the wave.
create or replace function relevo.journal_wave(claim uuid, of_project text, wave_ids bigint[], events bigint[], request_ids uuid[], firsts int[], lasts int[],
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

revoke all on function relevo.journal_wave from public;

-- Returns whether none of the phones of a wave changed since it was claimed: each has the token it had, and may receive what all of these
-- events say. `made` is when the first of the wave's deliveries was made: false if a phone was handled later, or an owner handled one of the
-- events; then each is looked at closely.
create or replace function relevo.phones_unchanged(installations uuid[], versions int[], events bigint[], made timestamptz) returns boolean
  language plpgsql stable
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
  set plan_cache_mode = force_generic_plan
as $$
declare
  categories text[] := array(select e.category from relevo.notification_events e where e.id = any (events) and e.category is not null);
begin
  return not exists (select from relevo.event_completions c where c.event_id = any (events))
    and not exists (
      select from unnest(installations, versions) as w(installation_id, token_version)
        left join relevo.device_installations i on i.installation_id = w.installation_id
       where (i.token_version = w.token_version and relevo.may_receive(i) and (i.handled_before is null or i.handled_before < made)
              and (i.opt_outs = '{}' or not i.opt_outs && categories)) is not true);
end
$$;

revoke all on function relevo.phones_unchanged from public;

-- Returns whether each of some phones is just as it was seen at its place in the table's file.
-- Why a place is enough: a row that is visible there now, and whose writer was done before the first look, was visible then, too; in one file a
-- place holds one such row, so it is the one that was seen, and a change of a phone writes another. Rows move without being written only into a
-- new file. Anything else counts as no, and the caller looks phones up by key; so does a row that was not written for two thousand million
-- transactions, whose writer's number means another by now. An event may have been handled meanwhile on another phone of an owner, which
-- changes no phone.
create or replace function relevo.phones_unmoved(places tid[], as_of text, events bigint[]) returns boolean
  language plpgsql stable
  set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
  least int := age(split_part(as_of, ' ', 2)::xid);
begin
  return least > 0
    and pg_relation_filenode('relevo.device_installations') = split_part(as_of, ' ', 1)::oid
    and not exists (select from relevo.event_completions c where c.event_id = any (events))
    and cardinality(places) = (select count(*) from relevo.device_installations i where i.ctid = any (places) and age(i.xmin) > least);
end
$$;

revoke all on function relevo.phones_unmoved from public;

-- Ends a claim, or, of the deliveries that it holds, some: what was never journalled is due again, what was journalled and not answered is
-- ambiguous. Returns how many became what, and how many of them are `ambiguous`. A claim of receipts only lets go of them.
create or replace function relevo.end_claim(claim uuid, only_ids bigint[], lapsed boolean, poison_lapses int, most_attempts int, timeout_ms bigint,
                                            receipt_ms bigint, given_at timestamptz)
  returns table (status text, deliveries int)
  language plpgsql volatile
  set enable_sort = on
as $$
declare
  at timestamptz := relevo.now(given_at);
  held relevo.claims;
  ambiguous int;
  written relevo.written_delivery[];
begin
  -- Whoever settles some of it is waited for; the statements below see the claim as it is then.
  select * into held from relevo.claims c where c.token = claim for update;
  if only_ids is null or held.ids <@ only_ids then
    delete from relevo.claims c where c.token = claim;
  else
    update relevo.claims c set days = r.days, ids = r.ids
      from (select coalesce(array_agg(u.event_day), '{}') as days, coalesce(array_agg(u.id), '{}') as ids
              from unnest(held.days, held.ids) as u(event_day, id) where u.id <> all (only_ids)) r
     where c.token = claim;
  end if;
  if held.token is null or held.cycle = 'receipt' then
    update relevo.awaited_receipts r set claim_token = null where r.claim_token = claim;
    return;
  end if;

  with key as materialized ( -- each with its unanswered request, if it was in one
    select k.event_day, k.id, max(k.journalled_at) as journalled_at, (array_agg(k.request_id) filter (where not k.is_held))[1] as request_id
      from (select u.event_day, u.id, null::timestamptz as journalled_at, null::uuid as request_id, true as is_held
              from unnest(held.days, held.ids) as u(event_day, id) where only_ids is null or u.id = any (only_ids)
            union all
            select u.event_day, u.id, r.journalled_at, r.id, false
              from relevo.push_requests r cross join unnest(r.days, r.ids) as u(event_day, id)
             where r.claim_token = claim and r.answered_at is null) k
     group by k.event_day, k.id
    having bool_or(k.is_held)
     order by k.event_day, k.id -- every writer locks deliveries in this order: no deadlock
  ), verdict as materialized ( -- sent by a late ticket; as before, or poison after too many lapses; or its answer was not seen
    select k.*, d.status as former_status, d.late_ticket, d.lapse_count + (lapsed and k.journalled_at is null)::int as lapses,
           case when d.late_ticket is not null then 'sent'
                when k.journalled_at is null and lapsed and d.lapse_count + 1 >= poison_lapses then 'failed'
                when k.journalled_at is null then d.status
                when d.is_once then 'unknown'
                when d.attempt_count + 1 >= coalesce(
                  (select t.max_attempts from relevo.event_types t where t.event_type = d.event_type), most_attempts) then 'failed'
                else 'retryable' end as final_status
      from key k
      cross join lateral (select d.*, coalesce((select e.at_most_once from relevo.notification_events e where e.id = d.notification_event_id),
                                               d.at_most_once) as is_once,
                                 (select l.ticket_id from relevo.late_tickets l where l.event_day = d.event_day and l.delivery_id = d.id
                                     and l.ticket_id is distinct from d.provider_ticket_id order by l.recorded_at desc limit 1) as late_ticket
                            from relevo.notification_deliveries d
                           where d.event_day = k.event_day and d.id = k.id and d.status in ('pending', 'retryable')
                          offset 0) d
  ), done as (
    update relevo.notification_deliveries d
       set status = v.final_status,
           attempt_count = d.attempt_count + (v.journalled_at is not null)::int,
           lapse_count = v.lapses,
           last_attempt_at = coalesce(v.journalled_at, d.last_attempt_at),
           completed_at = case when v.final_status in ('failed', 'unknown') then at end,
           updated_at = at,
           provider_ticket_id = coalesce(v.late_ticket, d.provider_ticket_id),
           last_error_code = case when v.late_ticket is not null then null
                                  when v.journalled_at is not null then 'answer_not_seen'
                                  when v.final_status = 'failed' then 'poison'
                                  else d.last_error_code end,
           last_error_message = case when v.late_ticket is not null then null
                                     when v.journalled_at is not null then 'A request was started and its answer was not seen.'
                                     when v.final_status = 'failed' then format('Its claim lapsed %s times before a request was started.', v.lapses)
                                     else d.last_error_message end
      from verdict v
     where d.event_day = any (array[v.event_day]) and d.id = v.id
    returning d.*, v.former_status, v.journalled_at is not null as is_ambiguous, v.request_id, v.late_ticket is not null as was_sent
  )
  select array_agg(row(w.event_day, w.id, w.notification_event_id, w.project, w.installation_id, w.provider_ticket_id, w.token_version, w.attempt_count,
                       w.former_status, w.status,
                       case when w.status not in ('pending', 'retryable') then null when w.is_ambiguous then at + timeout_ms * interval '1 millisecond'
                            else coalesce(held.due_at, at) end,
                       w.was_sent, w.status <> 'sent' and (w.is_ambiguous or w.status = 'failed'),
                       w.last_error_code, w.last_error_code, w.last_error_message, w.request_id)::relevo.written_delivery),
         count(*) filter (where w.is_ambiguous)
    into written, ambiguous from done w;

  perform relevo.record_outcomes(written, case when lapsed then 'reaper' else 'dispatch' end, receipt_ms, at);
  return query
    select w.status, count(*)::int from unnest(written) w group by w.status
     union all
    select 'ambiguous', ambiguous where written is not null;
end
$$;

revoke all on function relevo.end_claim from public;

-- Keeps tickets that arrived after their claim was lost, for whoever owns the delivery's chunk or claim. Only what was given up because the
-- answer was not seen, as unknown or, after its last attempt, as failed, is closed with its ticket at once: nobody owns it, or, as a redrive
-- does, who locks its dead letter. Returns how many were closed, and how many tickets kept.
create or replace function relevo.keep_late_tickets(claim uuid, of_days date[], of_ids bigint[], tickets text[], versions int[], receipt_ms bigint,
                                                    given_at timestamptz, out closed int, out kept int)
  language plpgsql volatile
  set enable_sort = on
as $$
declare
  at timestamptz := relevo.now(given_at);
  open_days date[];
  written relevo.written_delivery[];
begin
  -- A reaper at work on the claim is waited for. A month on its way to the archive is not written to any more.
  perform from relevo.claims c where c.token = claim for no key update;
  open_days := relevo.hold_open(array(select distinct u.day from unnest(of_days) as u(day)));

  with told as materialized (
    select u.event_day, u.id, u.ticket_id, u.token_version
      from unnest(of_days, of_ids, tickets, versions) as u(event_day, id, ticket_id, token_version)
     where u.ticket_id is not null and u.event_day = any (open_days)
     order by u.event_day, u.id -- every writer locks deliveries in this order, dead letters before them: no deadlock
  ), dead as materialized (
    select l.delivery_id
      from told t
      cross join lateral (select l.delivery_id from relevo.dead_letters l where l.event_day = t.event_day and l.delivery_id = t.id for update) l
  ), late as materialized (
    select t.*, d.former_status, d.former_status = 'unknown' or (d.former_status = 'failed' and d.last_error_code = 'answer_not_seen') as is_closable
      from told t
      left join lateral (select d.status as former_status, d.last_error_code, d.provider_ticket_id
                           from relevo.notification_deliveries d
                          where d.event_day = t.event_day and d.id = t.id
                            for no key update) d on true
     where d.provider_ticket_id is distinct from t.ticket_id and (select count(*) from dead) >= 0
  ), buried as (
    delete from relevo.dead_letters l using late t where t.is_closable and l.event_day = any (array[t.event_day]) and l.delivery_id = t.id
  ), done as (
    update relevo.notification_deliveries d
       set status = 'sent', provider_ticket_id = t.ticket_id, token_version = t.token_version, completed_at = null,
           last_attempt_at = at, updated_at = at, last_error_code = null, last_error_message = null
      from late t
     where d.event_day = any (array[t.event_day]) and d.id = t.id and t.is_closable
    returning d.*, t.former_status
  ), evidence as (
    insert into relevo.late_tickets (event_day, delivery_id, ticket_id, claim_token, recorded_at)
    select t.event_day, t.id, t.ticket_id, claim, at from late t where t.is_closable is not true
    on conflict do nothing
    returning delivery_id
  )
  select array_agg(row(w.event_day, w.id, w.notification_event_id, w.project, w.installation_id, w.provider_ticket_id, w.token_version, w.attempt_count,
                       w.former_status, w.status, null, true, false, null, null, null, null)::relevo.written_delivery),
         count(*), (select count(*) from evidence)
    into written, closed, kept from done w;

  perform relevo.record_outcomes(written, 'dispatch', receipt_ms, at);
end
$$;

revoke all on function relevo.keep_late_tickets from public;

-- Notes the first push of events, and of their tenders. Tenders are locked before their events, by key, as ingest does: no deadlock. Fan-out
-- may hold an event; then the next settle notes it.
create or replace function relevo.note_sent(events bigint[], at timestamptz) returns void language plpgsql volatile
as $$
declare
  unnoted bigint[];
  tenders bigint[];
begin
  select array_agg(e.id) filter (where e.first_sent_at is null), array_agg(e.licitacion_id) filter (where l.id is not null)
    into unnoted, tenders
    from (select distinct v.event_id from unnest(events) as v(event_id)) v
    cross join lateral (select e.id, e.licitacion_id, e.first_sent_at from relevo.notification_events e where e.id = v.event_id offset 0) e
    left join lateral (select l.id from relevo.licitaciones l where l.id = e.licitacion_id and not l.notificada offset 0) l on true;
  if tenders is not null then
    update relevo.licitaciones l set notificada = true
      from (select t.id from relevo.licitaciones t where t.id = any (tenders) and not t.notificada
             order by t.namespace, t.external_id for no key update) t
     where l.id = t.id;
  end if;
  if unnoted is not null then
    update relevo.notification_events e set first_sent_at = at
      from (select n.id from relevo.notification_events n where n.id = any (unnoted) and n.first_sent_at is null
              for no key update skip locked) n
     where e.id = n.id;
  end if;
end
$$;

revoke all on function relevo.note_sent from public;

-- Returns what becomes of a delivery that is to be tried again: its attempts may be used up, or its deadline may pass before.
create or replace function relevo.retry_status(paced boolean, attempts int, max_attempts int, retry_at timestamptz, deadline_at timestamptz)
  returns text language sql immutable
  return case when paced and attempts >= max_attempts then 'failed'
              when retry_at >= deadline_at then 'expired'
              when attempts = 0 then 'pending'
              else 'retryable' end;

revoke all on function relevo.retry_status from public;

-- Writes what was answered of deliveries, as far as the claim still holds them, takes them out of it, and returns how many became what.
-- Answers come in sorts: what was said, in which request, of which type. `kinds` says of each answer which sort it is of.
create or replace function relevo.settle_deliveries(
  claim uuid, of_days date[], of_ids bigint[], kinds int[], tickets text[], versions int[],
  sort_statuses text[], sort_spent int[], sort_paced boolean[], sort_codes text[], sort_messages text[], sort_floors_ms bigint[],
  sort_projects text[], sort_not_befores timestamptz[], sort_types text[], sort_formers text[], sort_requests uuid[],
  request_ids uuid[], request_outcomes text[], most_attempts int, base_ms bigint, max_ms bigint, jitter_ms bigint, receipt_ms bigint,
  finish boolean, given_at timestamptz) returns table (status text, deliveries int)
  language plpgsql volatile
  set enable_sort = on
as $$
declare
  at timestamptz := relevo.now(given_at);
  held_days date[];
  held_ids bigint[];
  late_tickets text[];
  written relevo.written_delivery[];
begin
  -- A reaper at work on the claim is waited for; the statements below see the claim as it is then.
  select c.days, c.ids into held_days, held_ids from relevo.claims c where c.token = claim for no key update;

  -- What ends unsent was sent after all if a ticket came late.
  if exists (select from relevo.late_tickets) then
    select array_agg(l.ticket_id order by a.place) into late_tickets
      from unnest(of_days, of_ids, kinds) with ordinality as a(event_day, id, kind, place)
      left join lateral (select l.ticket_id
                           from relevo.late_tickets l join relevo.notification_deliveries d on d.event_day = l.event_day and d.id = l.delivery_id
                          where sort_spent[a.kind] = 0 and sort_statuses[a.kind] not in ('sent', 'retryable')
                            and l.event_day = a.event_day and l.delivery_id = a.id and l.ticket_id is distinct from d.provider_ticket_id
                          order by l.recorded_at desc limit 1) l on true;
  end if;

  -- A retry gets its time here, and its status: it may be the last, or come too late.
  with sort as materialized ( -- one chance for each sort: what failed together is tried again together
    select o.*, random() as chance, coalesce(t.max_attempts, most_attempts) as of_attempts,
           coalesce(t.retry_base_ms, base_ms) as of_base_ms, coalesce(t.retry_max_ms, greatest(max_ms, t.retry_base_ms)) as of_max_ms,
           coalesce(t.retry_jitter_ms, jitter_ms) as of_jitter_ms
      from unnest(sort_statuses, sort_spent, sort_paced, sort_codes, sort_messages, sort_floors_ms, sort_projects, sort_not_befores, sort_types,
                  sort_formers, sort_requests)
        with ordinality as o(said, spent, paced, code, message, floor_ms, project, not_before, event_type, former_status, request_id, kind)
      left join relevo.event_types t on t.event_type = o.event_type
  ), answer as materialized (
    select a.event_day, a.id, coalesce(a.ticket_id, a.late_ticket) as ticket_id, a.token_version, s.*,
           case when a.late_ticket is not null then 'sent' else s.said end as outcome
      from unnest(of_days, of_ids, kinds, tickets, versions, late_tickets) as a(event_day, id, kind, ticket_id, token_version, late_ticket)
      join sort s on s.kind = a.kind
     where (a.id in (select h.id from unnest(held_ids) as h(id))) is true
     order by a.event_day, a.id -- every writer locks deliveries in this order: no deadlock
  ), verdict as materialized (
    select a.*, g.retry_at, case a.outcome when 'retryable' then relevo.retry_status(a.paced, g.attempts, a.of_attempts, g.retry_at, g.deadline_at)
                                           else a.outcome end as final_status
      from answer a
      -- here and elsewhere offset 0 keeps this a lookup by key: flattened, it can become batch x batch comparisons
      left join lateral (select d.attempt_count + a.spent as attempts,
                                greatest(a.not_before, at + case when a.paced
                                  then relevo.retry_delay(d.attempt_count + a.spent, a.of_base_ms, a.of_max_ms, a.of_jitter_ms, a.floor_ms, a.chance)
                                  else a.floor_ms * interval '1 millisecond' end) as retry_at, -- what spent nothing waits no longer than it was told to
                                (select e.deadline_at from relevo.notification_events e where e.id = d.notification_event_id) as deadline_at
                           from relevo.notification_deliveries d
                          where a.outcome = 'retryable' and d.event_day = a.event_day and d.id = a.id
                         offset 0) g on true
  ), done as (
    update relevo.notification_deliveries d
       set status = v.final_status,
           project = case when v.outcome = 'retryable' and v.project is not null then v.project else d.project end,
           attempt_count = d.attempt_count + v.spent,
           lapse_count = 0,
           last_attempt_at = case when v.spent > 0 then at else d.last_attempt_at end,
           completed_at = case when v.final_status not in ('pending', 'retryable', 'sent') then at end,
           updated_at = at,
           last_error_code = case when v.final_status <> 'sent' then coalesce(v.code, d.last_error_code) end,
           last_error_message = case when v.final_status = 'sent' then null when v.code is not null then v.message
                                     else coalesce(v.message, d.last_error_message) end,
           provider_ticket_id = case when v.outcome = 'retryable' then d.provider_ticket_id else coalesce(v.ticket_id, d.provider_ticket_id) end,
           token_version = coalesce(v.token_version, d.token_version)
      from verdict v
     where d.event_day = any (array[v.event_day]) and d.id = v.id
    returning d.*, v.former_status, v.retry_at, v.spent, v.code, v.message, v.request_id
  ), repeated as (
    insert into relevo.event_repeat_deltas (event_id, repeats)
    select w.notification_event_id, count(*)::int from done w where w.spent > 0 and w.former_status = 'retryable' group by w.notification_event_id
  )
  select array_agg(row(w.event_day, w.id, w.notification_event_id, w.project, w.installation_id, w.provider_ticket_id, w.token_version, w.attempt_count,
                       w.former_status, w.status, case when w.status in ('pending', 'retryable') then w.retry_at end, w.spent > 0 or w.status = 'sent',
                       w.status = 'failed' or w.spent > 0 and w.status in ('retryable', 'pending', 'invalid', 'expired', 'unknown'),
                       w.last_error_code, w.code, w.message, w.request_id)::relevo.written_delivery)
    into written from done w;

  perform relevo.record_outcomes(written, 'dispatch', receipt_ms, at);
  update relevo.push_requests r set answered_at = at, outcome = q.outcome
    from unnest(request_ids, request_outcomes) as q(id, outcome)
   where r.claim_token = claim and r.answered_at is null and r.id = q.id;

  -- The claim keeps the rest, with a longer lease, or goes.
  select coalesce(array_agg(h.event_day), '{}'), coalesce(array_agg(h.id), '{}') into held_days, held_ids
    from unnest(held_days, held_ids) as h(event_day, id) where (h.id in (select a.id from unnest(of_ids) as a(id))) is not true;
  if finish and held_ids = '{}' then
    delete from relevo.claims c where c.token = claim;
  else
    update relevo.claims c set days = held_days, ids = held_ids, leased_until = relevo.longer_lease(c, at) where c.token = claim;
  end if;
  return query select w.status, count(*)::int from unnest(written) w group by w.status;
end
$$;

revoke all on function relevo.settle_deliveries from public;

-- Settles requests of which every delivery was sent, and which are what the claim holds next, as the general statement would; returns null,
-- with nothing written, if the claim does not hold them.
-- How it goes: lock the claim, update deliveries, await receipts, count, note first pushes, close the requests, shorten or end the claim.
-- Sorting is allowed: before PostgreSQL 18 a forbidden sort that happens nevertheless looks so dear that no other cost counts.
create or replace function relevo.settle_sent(claim uuid, of_project text, sent_ids bigint[], unsent int[], tickets text[], of_installations uuid[],
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
  perform relevo.note_sent(events, at);
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
       set days = kept_days || c.days[reach + 1:], ids = kept_ids || c.ids[reach + 1:], leased_until = relevo.longer_lease(c, at)
     where c.token = claim;
  end if;
  return written;
end
$$;

revoke all on function relevo.settle_sent from public;

-- adopt_claim as 0.3.0 calls it.
create or replace function relevo.adopt_claim_2(claim uuid, at timestamptz) returns table (event_day date, event_id bigint, event_type text,
    at_most_once boolean, attempt_count smallint, lapse_count smallint, deadline_at timestamptz, seconds_left float8, created_at
    timestamptz, ids bigint[], installations uuid[], tokens text[], versions int[], platforms text[], locales text[], obstacles text[],
    lease_ms int)
  language sql stable
as $$ select * from relevo.adopt_claim($1, $2) $$;

revoke all on function relevo.adopt_claim_2 from public;

-- check_deadline as 0.3.0 calls it.
create or replace function relevo.check_deadline_1(until timestamptz, at timestamptz, place bigint) returns timestamptz
  language sql stable
as $$ select relevo.check_deadline($1, $2, $3) $$;

revoke all on function relevo.check_deadline_1 from public;

-- claim_awaited as 0.3.0 calls it.
create or replace function relevo.claim_awaited_1( claim uuid, worker text, of_project text, most int, given_at timestamptz, shard int,
    shards int, lease_ms int ) returns table (sent_at timestamptz, days date[], ids bigint[], installations uuid[], tickets text[], versions
    int[], attempts smallint[])
  language sql volatile
as $$ select * from relevo.claim_awaited($1, $2, $3, $4, $5, $6, $7, $8) $$;

revoke all on function relevo.claim_awaited_1 from public;

-- claim_due as 0.3.0 calls it.
create or replace function relevo.claim_due_4(claim uuid, worker text, of_cycle text, of_project text, of_lane text, most int, given_at
    timestamptz, shard int, shards int, only_types text[], not_types text[], suspect_lapses int, usual_lease_ms int, since timestamptz)
    returns table (event_day date, event_id bigint, event_type text, at_most_once boolean, attempt_count smallint, lapse_count smallint,
    deadline_at timestamptz, seconds_left float8, created_at timestamptz, ids bigint[], installations uuid[], tokens text[], versions int[],
    platforms text[], locales text[], obstacles text[], lease_ms int, as_of text, places text)
  language sql volatile
as $$ select * from relevo.claim_due($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) $$;

revoke all on function relevo.claim_due_4 from public;

-- claim_probe as 0.3.0 calls it.
create or replace function relevo.claim_probe_2(claim uuid, worker text, of_cycle text, of_project text, of_lane text, most int, given_at
    timestamptz, shard int, shards int, only_types text[], not_types text[], usual_lease_ms int, look_at int) returns table (event_day date,
    event_id bigint, event_type text, at_most_once boolean, attempt_count smallint, lapse_count smallint, deadline_at timestamptz,
    seconds_left float8, created_at timestamptz, ids bigint[], installations uuid[], tokens text[], versions int[], platforms text[],
    locales text[], obstacles text[], lease_ms int)
  language sql volatile
as $$ select * from relevo.claim_probe($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) $$;

revoke all on function relevo.claim_probe_2 from public;

-- count_event as 0.3.0 calls it.
create or replace function relevo.count_event_2(of_stream bigint, of_release int, was_held boolean, due_at timestamptz, phones uuid[], out
    most float8)
  language sql volatile
as $$ select * from relevo.count_event($1, $2, $3, $4, $5) $$;

revoke all on function relevo.count_event_2 from public;

-- count_events as 0.3.0 calls it.
create or replace function relevo.count_events_1(events bigint[], installations uuid[], passed boolean) returns table (counted uuid[],
    in_hour float8[], busiest_day int[])
  language sql volatile
as $$ select * from relevo.count_events($1, $2, $3) $$;

revoke all on function relevo.count_events_1 from public;

-- move_counts as 0.3.0 calls it.
create or replace function relevo.count_over_1(events bigint[], formers text[], statuses text[], numbers int[] default '{}') returns void
  language sql volatile
as $$ select relevo.move_counts($1, $2, $3, $4) $$;

revoke all on function relevo.count_over_1 from public;

-- delete_leftovers as 0.3.0 calls it.
create or replace function relevo.delete_leftovers_1(most int) returns int
  language sql volatile
as $$ select relevo.delete_leftovers($1) $$;

revoke all on function relevo.delete_leftovers_1 from public;

-- delete_deliveries as 0.3.0 calls it.
create or replace function relevo.delete_some_1(id_of_event bigint, of_day date, from_phone uuid, most int, out deleted int, out last_phone
    uuid, out finished boolean)
  language sql volatile
as $$ select * from relevo.delete_deliveries($1, $2, $3, $4) $$;

revoke all on function relevo.delete_some_1 from public;

-- due_lanes as 0.3.0 calls it.
create or replace function relevo.due_lanes_2(given_at timestamptz, after_id bigint, most_new int, again_projects text[], again_lanes
    text[], again_since timestamptz[], after_project text, after_lane text, most int) returns table (project text, lane text, due_at
    timestamptz, wait_s double precision, troubled boolean, numbered bigint, oldest_xid bigint, next_xid bigint, walked int, last_project
    text, last_lane text)
  language sql stable
as $$ select * from relevo.due_lanes($1, $2, $3, $4, $5, $6, $7, $8, $9) $$;

revoke all on function relevo.due_lanes_2 from public;

-- event_time as 0.3.0 calls it.
create or replace function relevo.event_time_1(event jsonb, name text, place bigint) returns timestamptz
  language sql stable
as $$ select relevo.event_time($1, $2, $3) $$;

revoke all on function relevo.event_time_1 from public;

-- expire_events as 0.3.0 calls it.
create or replace function relevo.expire_events_1(late bigint[], at timestamptz) returns void
  language sql volatile
as $$ select relevo.expire_events($1, $2) $$;

revoke all on function relevo.expire_events_1 from public;

-- fan_out_events as 0.3.0 calls it.
create or replace function relevo.fan_out_events_1(of_events bigint[], watched boolean, given_at timestamptz) returns table (created int,
    events bigint[], installations uuid[])
  language sql volatile
as $$ select * from relevo.fan_out_events($1, $2, $3) $$;

revoke all on function relevo.fan_out_events_1 from public;

-- fan_out_next as 0.3.0 calls it.
create or replace function relevo.fan_out_next_3(after_project text, given_up bigint[], apart bigint[], aside bigint[], few int, most_events
    int, most int, brake boolean, enough int, at_once boolean, unseen boolean, given_at timestamptz) returns table (id bigint, project text,
    audience text, lane text, event_day date, too_late boolean, named int, due_hour timestamptz, how text, fanned bigint[], late bigint[],
    events bigint[], installations uuid[], is_last boolean, targets int, created int, projects text[], counted uuid[], in_hour float8[],
    busiest_day int[])
  language sql volatile
as $$ select * from relevo.fan_out_next($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) $$;

revoke all on function relevo.fan_out_next_3 from public;

-- fan_out_small as 0.3.0 calls it.
create or replace function relevo.fan_out_small_2(of_lane text, of_project text, due_hour timestamptz, few int, most_events int, most int,
    left_out bigint[], watched boolean, given_at timestamptz) returns table (fanned bigint[], late bigint[], created int, events bigint[],
    installations uuid[], counted uuid[], in_hour float8[], busiest_day int[])
  language sql volatile
as $$ select * from relevo.fan_out_small($1, $2, $3, $4, $5, $6, $7, $8, $9) $$;

revoke all on function relevo.fan_out_small_2 from public;

-- journal_wave as 0.3.0 calls it.
create or replace function relevo.journal_wave_1(claim uuid, of_project text, wave_ids bigint[], events bigint[], request_ids uuid[], firsts
    int[], lasts int[], timeout_ms int, given_at timestamptz) returns boolean
  language sql volatile
as $$ select relevo.journal_wave($1, $2, $3, $4, $5, $6, $7, $8, $9) $$;

revoke all on function relevo.journal_wave_1 from public;

-- lease_ahead as 0.3.0 calls it.
create or replace function relevo.lease_ahead_1(of_project text, worker text, most int, lease_ms int) returns table (connections int,
    composed text[], project text, urgent_tokens double precision, bulk_tokens double precision, filled_at timestamptz, rate_share double
    precision, rest_until timestamptz, breaker text, breaker_reason text, breaker_by text, breaker_since timestamptz, probe_at timestamptz,
    trips int, failures int, pruning_stopped_at timestamptz, watched text[], refused boolean, now timestamptz, version text)
  language sql volatile
as $$ select * from relevo.lease_ahead($1, $2, $3, $4) $$;

revoke all on function relevo.lease_ahead_1 from public;

-- lock_personal_events as 0.3.0 calls it.
create or replace function relevo.lock_told_alone_1(installations uuid[], of_owner text) returns void
  language sql volatile
as $$ select relevo.lock_personal_events($1, $2) $$;

revoke all on function relevo.lock_told_alone_1 from public;

-- read_project as 0.3.0 calls it.
create or replace function relevo.look_at_project_1(of_project text, given_at timestamptz) returns table (project text, urgent_tokens double
    precision, bulk_tokens double precision, filled_at timestamptz, rate_share double precision, rest_until timestamptz, breaker text,
    breaker_reason text, breaker_by text, breaker_since timestamptz, probe_at timestamptz, trips int, failures int, pruning_stopped_at
    timestamptz, watched text[], refused boolean, now timestamptz, version text)
  language sql stable
as $$ select * from relevo.read_project($1, $2) $$;

revoke all on function relevo.look_at_project_1 from public;

-- matching_window as 0.3.0 calls it.
create or replace function relevo.matching_window_1(buckets text[], after_seq bigint, upto_seq bigint, most int) returns bigint
  language sql stable
as $$ select relevo.matching_window($1, $2, $3, $4) $$;

revoke all on function relevo.matching_window_1 from public;

-- note_sent as 0.3.0's statements call it, with the time that a test may give.
create or replace function relevo.note_first_sent(event_ids bigint[], at timestamptz) returns void
  language sql volatile
as $$ select relevo.note_sent($1, relevo.now($2)) $$;

revoke all on function relevo.note_first_sent from public;

-- note_sent as 0.3.0 calls it.
create or replace function relevo.note_sent_1(events bigint[], at timestamptz) returns void
  language sql volatile
as $$ select relevo.note_sent($1, $2) $$;

revoke all on function relevo.note_sent_1 from public;

-- phones_unchanged as 0.3.0 calls it.
create or replace function relevo.phones_unchanged_1(installations uuid[], versions int[], events bigint[], made timestamptz) returns
    boolean
  language sql stable
as $$ select relevo.phones_unchanged($1, $2, $3, $4) $$;

revoke all on function relevo.phones_unchanged_1 from public;

-- phones_unmoved as 0.3.0 calls it.
create or replace function relevo.phones_unmoved_1(places tid[], as_of text, events bigint[]) returns boolean
  language sql stable
as $$ select relevo.phones_unmoved($1, $2, $3) $$;

revoke all on function relevo.phones_unmoved_1 from public;

-- pick_small_events as 0.3.0 calls it.
create or replace function relevo.pick_small_events_2(of_lane text, of_project text, due_hour timestamptz, few int, most int, left_out
    bigint[], at timestamptz) returns table (id bigint, is_late boolean, named int)
  language sql volatile
as $$ select * from relevo.pick_small_events($1, $2, $3, $4, $5, $6, $7) $$;

revoke all on function relevo.pick_small_events_2 from public;

-- settle_confirmed as 0.3.0 calls it.
create or replace function relevo.settle_confirmed_1(claim uuid, asked int, given_at timestamptz) returns int
  language sql volatile
as $$ select relevo.settle_confirmed($1, $2, $3) $$;

revoke all on function relevo.settle_confirmed_1 from public;

-- settle_sent as 0.3.0 calls it.
create or replace function relevo.settle_sent_2(claim uuid, of_project text, sent_ids bigint[], unsent int[], tickets text[],
    of_installations uuid[], versions int[], of_attempts smallint[], request_ids uuid[], firsts int[], lasts int[], events bigint[], formers
    text[], counts int[], receipt_ms int, finish boolean, given_at timestamptz) returns int
  language sql volatile
as $$ select relevo.settle_sent($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) $$;

revoke all on function relevo.settle_sent_2 from public;

-- was_sent_to_token as 0.3.0 calls it.
create or replace function relevo.told_already_1(of_day date, of_event bigint, by_other_than uuid, token text, since timestamptz) returns
    boolean
  language sql stable
as $$ select relevo.was_sent_to_token($1, $2, $3, $4, $5) $$;

revoke all on function relevo.told_already_1 from public;

-- wrong_counts as 0.3.0 calls it.
create or replace function relevo.wrong_counts_1(events bigint[]) returns table (event_id bigint, status text, missing bigint)
  language sql stable
as $$ select * from relevo.wrong_counts($1) $$;

revoke all on function relevo.wrong_counts_1 from public;

-- Records what follows from deliveries that were just written, by a settle, by receipts, by a late ticket or by the end of their claim. Events
-- and tenders are locked last, in the order that is said in queries/settle.sql.
create or replace function relevo.record_outcomes(written relevo.written_delivery[], found_by text, receipt_ms bigint, at timestamptz) returns void
  language plpgsql volatile
  set enable_sort = on
as $$
begin
  -- Receipts of what was sent are asked for later, a hundred at a time.
  insert into relevo.awaited_receipts (project, look_at, sent_at, days, ids, installations, tickets, versions, attempts)
  select w.project, at + receipt_ms * interval '1 millisecond', at, array_agg(w.event_day), array_agg(w.id), array_agg(w.installation_id),
         array_agg(w.ticket_id), array_agg(w.token_version), array_agg(w.attempt)
    from (select w.*, (row_number() over () - 1) / 100 as piece from unnest(written) w where w.status = 'sent') w
   group by w.project, w.piece;

  -- What failed for good can be redriven. A dead letter that stands there already is a stray one.
  insert into relevo.dead_letters (event_day, delivery_id, event_id, project, error_code, died_at)
  select w.event_day, w.id, w.event_id, w.project, w.error_code, at from unnest(written) w where w.status = 'failed'
  on conflict (event_day, delivery_id) do update
     set event_id = excluded.event_id, project = excluded.project, error_code = excluded.error_code, died_at = excluded.died_at;

  -- Operators read what went wrong with each attempt; only the first twenty of a delivery are kept.
  insert into relevo.failed_attempts (event_day, delivery_id, n, at, attempt, found_by, became, error_code, error_message, request_id)
  select w.event_day, w.id, f.n, at, w.attempt, found_by, w.status, w.said_code, w.said_message, w.request_id
    from unnest(written) w
    cross join lateral (select coalesce(max(f.n), 0) + 1 as n from relevo.failed_attempts f where f.event_day = w.event_day and f.delivery_id = w.id) f
   where w.has_failed and f.n <= 20
  on conflict do nothing;

  -- The counts of the events, which a reaper folds.
  perform relevo.move_counts(array_agg(c.event_id), array_agg(c.former_status), array_agg(c.status), array_agg(c.n))
     from (select w.event_id, w.former_status, w.status, count(*)::int as n from unnest(written) w group by w.event_id, w.former_status, w.status) c;

  -- The project's brake and breaker go by these. What was sent before is now confirmed.
  insert into relevo.push_tallies (project, at, sent, answers, unregistered, confirmed, failed)
  select w.project, at, count(*) filter (where w.status in ('sent', 'ok') and w.former_status <> 'sent'), count(*),
         count(*) filter (where w.status = 'invalid'), count(*) filter (where w.status = 'ok' and w.former_status = 'sent'),
         count(*) filter (where w.status = 'failed')
    from unnest(written) w where w.is_answer group by w.project;

  -- A late ticket that a delivery now has is no evidence any more.
  if exists (select from relevo.late_tickets) then
    delete from relevo.late_tickets l using unnest(written) w
     where l.event_day = w.event_day and l.delivery_id = w.id and l.ticket_id = w.ticket_id;
  end if;

  -- What is open again goes into the queue.
  perform relevo.queue_deliveries(array_agg(w.event_day), array_agg(w.id), array_agg(w.due_at))
     from unnest(written) w where w.status in ('pending', 'retryable') having count(*) > 0;

  perform relevo.note_sent(array_agg(distinct w.event_id), at)
     from unnest(written) w where w.status in ('sent', 'ok') and w.former_status <> 'sent' having count(*) > 0;
end
$$;

revoke all on function relevo.record_outcomes from public;

-- Returns where the deliveries of some chunks go and what keeps each from being sent now, chunk by chunk in their order. Also the lease, and
-- for phones_unmoved: in which file the phones lie, from which transaction on one may have written what is not seen here, and where in that
-- file each phone lies.
create or replace function relevo.look_up_phones(chunks relevo.due_chunks[], at timestamptz, lease int)
  returns table (event_day date, event_id bigint, event_type text, at_most_once boolean, attempt_count smallint, lapse_count smallint,
                 deadline_at timestamptz, seconds_left float8, created_at timestamptz, ids bigint[], installations uuid[], tokens text[],
                 versions int[], platforms text[], locales text[], obstacles text[], lease_ms int, as_of text, places text)
  language sql stable
as $$
  select c.event_day, c.event_id, c.event_type, coalesce(e.at_most_once, false), c.attempt_count, c.lapse_count, e.deadline_at,
         extract(epoch from e.deadline_at - at)::float8, c.created_at, c.ids, c.installations, l.tokens, l.versions, l.platforms, l.locales, l.obstacles,
         lease, pg_relation_filenode('relevo.device_installations') || ' ' || pg_snapshot_xmin(pg_current_snapshot())::xid, l.places::text
    from unnest(chunks) c
    left join relevo.notification_events e on e.id = c.event_id
    cross join lateral (
      select array_agg(i.token) as tokens, array_agg(i.token_version) as versions, array_agg(i.platform) as platforms,
             array_agg(i.locale) as locales, array_agg(i.ctid) as places,
             array_agg(coalesce(
               relevo.event_obstacle(e.id, e.ended_at, e.deadline_at, at, i.handled_before >= c.created_at
                 or i.owner is not null and (select exists (select from relevo.event_completions)) and exists (
                      select from relevo.event_completions h where h.event_id = c.event_id and h.owner = i.owner)),
               relevo.phone_obstacle(i.installation_id, i.may_receive, i.opt_outs, e.category),
               case when e.audience = 'matching' and not exists (
                      select from relevo.notification_preferences p
                       where p.installation_id = u.installation_id and relevo.preference_matches(p, e)) then 'preference_changed'
                    when (i.token_taken_at >= e.fanout_started_at) is true -- unknown would not keep the next from being asked
                         and relevo.was_sent_to_token(c.event_day, c.event_id, u.installation_id, i.token, e.fanout_started_at) then 'told_already'
                    when c.lane = 'bulk' and (select exists (select from relevo.event_repeats r where r.held_at is not null)) and exists (
                      select from relevo.event_repeats r where r.event_id = c.event_id and r.held_at is not null) then 'repeats_held'
               end)) as obstacles
        from unnest(c.installations) as u(installation_id)
        -- looked up one by one: the arrays are in the order of the chunk, whatever the plan
        left join lateral (select x.installation_id, x.token, x.token_version, x.platform, x.locale, x.owner, x.handled_before, x.opt_outs, x.token_taken_at,
                                  relevo.may_receive(x) as may_receive, x.ctid
                             from relevo.device_installations x where x.installation_id = u.installation_id offset 0) i on true) l
$$;

revoke all on function relevo.look_up_phones from public;

-- Puts back into the queue what a claim does not take of a chunk.
create or replace function relevo.put_back(chunk relevo.due_chunks, left_ids bigint[], left_installations uuid[]) returns void
  language plpgsql volatile
as $$
begin
  insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                                 ids, installations)
  values (chunk.project, chunk.lane, chunk.due_at, chunk.event_day, chunk.event_id, chunk.event_type, chunk.created_at, chunk.attempt_count,
          chunk.lapse_count, chunk.had_error, left_ids, left_installations);
end
$$;

revoke all on function relevo.put_back from public;

-- Writes a claim: who has it, until when, and what it holds. Many small chunks are unnested by one statement, a few large ones one by one.
create or replace function relevo.write_claim(claim uuid, worker text, of_cycle text, lease int, at timestamptz, chunks relevo.due_chunks[]) returns void
  language plpgsql
as $$
declare
  few constant int := 20;
  chunk relevo.due_chunks;
  held_days date[] := '{}';
  held_ids bigint[] := '{}';
begin
  if cardinality(chunks) <= few then
    foreach chunk in array chunks loop
      held_days := held_days || array_fill(chunk.event_day, array[cardinality(chunk.ids)]);
      held_ids := held_ids || chunk.ids;
    end loop;
  else
    select array_agg(c.event_day), array_agg(u.id) into held_days, held_ids
      from unnest(chunks) c cross join lateral unnest(c.ids) as u(id);
  end if;
  insert into relevo.claims (token, worker_id, cycle, claimed_at, lease_ms, leased_until, days, ids, events, due_at)
  select claim, worker, of_cycle, at, lease, at + lease * interval '1 millisecond', held_days, held_ids, array_agg(distinct c.event_id), min(c.due_at)
    from unnest(chunks) c;
end
$$;

revoke all on function relevo.write_claim from public;

-- look_up_phones as 0.3.0 calls it.
create or replace function relevo.look_at_2(chunks relevo.due_chunks[], at timestamptz) returns table (event_day date, event_id bigint,
    event_type text, at_most_once boolean, attempt_count smallint, lapse_count smallint, deadline_at timestamptz, seconds_left float8,
    created_at timestamptz, ids bigint[], installations uuid[], tokens text[], versions int[], platforms text[], locales text[], obstacles
    text[])
  language sql stable
as $$
  select l.event_day, l.event_id, l.event_type, l.at_most_once, l.attempt_count, l.lapse_count, l.deadline_at, l.seconds_left, l.created_at,
         l.ids, l.installations, l.tokens, l.versions, l.platforms, l.locales, l.obstacles
    from relevo.look_up_phones($1, $2, null) l
$$;

revoke all on function relevo.look_at_2 from public;

-- look_up_phones as 0.3.0 calls it.
create or replace function relevo.look_at_3(chunks relevo.due_chunks[], at timestamptz, lease int) returns table (event_day date, event_id
    bigint, event_type text, at_most_once boolean, attempt_count smallint, lapse_count smallint, deadline_at timestamptz, seconds_left
    float8, created_at timestamptz, ids bigint[], installations uuid[], tokens text[], versions int[], platforms text[], locales text[],
    obstacles text[], lease_ms int, as_of text, places text)
  language sql stable
as $$ select * from relevo.look_up_phones($1, $2, $3) $$;

revoke all on function relevo.look_at_3 from public;

-- put_back as 0.3.0 calls it.
create or replace function relevo.put_back_1(chunk relevo.due_chunks, left_ids bigint[], left_installations uuid[]) returns void
  language sql volatile
as $$ select relevo.put_back($1, $2, $3) $$;

revoke all on function relevo.put_back_1 from public;

-- write_claim as 0.3.0 calls it.
create or replace function relevo.write_claim_1(claim uuid, worker text, of_cycle text, lease int, at timestamptz, chunks
    relevo.due_chunks[]) returns void
  language sql volatile
as $$ select relevo.write_claim($1, $2, $3, $4, $5, $6) $$;

revoke all on function relevo.write_claim_1 from public;

-- Returns until when a claim may be held once something of it was settled: for its lease from then on, but not after three leases in all.
create or replace function relevo.longer_lease(c relevo.claims, at timestamptz) returns timestamptz language sql stable
  return case when at < c.claimed_at + 3 * c.lease_ms * interval '1 millisecond'
              then greatest(c.leased_until, at + c.lease_ms * interval '1 millisecond') else c.leased_until end;

revoke all on function relevo.longer_lease from public;

-- Returns whether a worker is alive: it did not stop, and was heard of within its lease. It is inlined.
create or replace function relevo.is_alive(w relevo.workers, at timestamptz default null) returns boolean
  language sql stable parallel safe
  return w.stopped_at is null and w.lost_at is null and w.last_seen_at + w.lease_ms * interval '1 millisecond' > coalesce(at, now());

revoke all on function relevo.is_alive from public;

-- Counts an event's first slice for the brake: for the stream as a whole unless it is personal, and for up to a hundred of its phones. Returns the
-- counts if one of them is above `enough`; fewer are too much for nobody. A stream that is not known yet begins here.
create or replace function relevo.count_slice(e relevo.notification_events, origin_of text, of_stream bigint, of_release int, is_held boolean,
    due timestamptz, phones uuid[], enough int, out counted uuid[], out in_hour float8[], out busiest_day int[])
  language plpgsql volatile
as $$
#variable_conflict use_column
declare
  stream bigint := of_stream;
  release int := of_release;
  was_held boolean := is_held;
  watched uuid[] := case when e.audience <> 'installations' then '{00000000-0000-0000-0000-000000000000}'::uuid[] else '{}' end
    || case when cardinality(phones) <= 100 then phones else array(select u.phone from unnest(phones) as u(phone) order by u.phone limit 100) end;
begin
  if stream is null then
    insert into relevo.event_streams (event_type, origin, known_since) values (e.event_type, origin_of, due)
    on conflict (event_type, origin) do nothing;
    select s.id, s.releases, exists (select from relevo.held_events h where h.event_id = e.id) into stream, release, was_held
      from relevo.event_streams s where s.event_type = e.event_type and s.origin = origin_of;
  end if;
  if relevo.count_event(stream, release, was_held, due, watched) > enough then
    select array_agg(c.installation_id), array_agg(relevo.count_of_hour(c.hour_at, c.in_hour, c.hour_before, due)), array_agg(c.busiest_day)
      into counted, in_hour, busiest_day
      from relevo.event_counts c where c.stream_id = stream and c.installation_id = any (watched);
  end if;
end
$$;

revoke all on function relevo.count_slice from public;

-- Cuts the phones of a named audience that are still to come into slices, keeps all but the first, and returns the first.
create or replace function relevo.cut_slices(e relevo.notification_events, named uuid[], most int) returns bigint[]
  language plpgsql volatile
as $$
declare
  ahead bigint[] := array(select i.seq
                            from (select i.seq from relevo.device_installations i where i.installation_id = any (named) offset 0) i
                           where i.seq > e.fanout_cursor and i.seq <= e.fanout_upto
                           order by i.seq);
begin
  insert into relevo.fanout_slices (event_id, last_seq, seqs)
  select e.id, s.seqs[cardinality(s.seqs)], s.seqs
    from (select ahead[n + 1 : n + most] as seqs from generate_series(most, cardinality(ahead) - 1, most) as n) s
  on conflict (event_id, last_seq) do update set seqs = excluded.seqs; -- kept before, of another size
  return ahead[:most];
end
$$;

revoke all on function relevo.cut_slices from public;

-- Returns the next phones of all, or of one project, up to a slice of them:
-- whether they are the last, the last one's sequence number, and of those that may receive it the ids, providers and sending projects.
-- Each way has a plan of its own.
create or replace function relevo.everyone_targets(e relevo.notification_events, most int,
    out is_last boolean, out last_seq bigint, out phones uuid[], out providers text[], out projects text[])
  language plpgsql volatile
as $$
begin
  if e.project is null then
    select count(*) < most, max(t.seq), array_agg(t.installation_id) filter (where t.is_in), array_agg(t.provider) filter (where t.is_in),
           array_agg(t.project) filter (where t.is_in)
      into is_last, last_seq, phones, providers, projects
      from (select i.seq, i.installation_id, i.provider, relevo.sending_project(i.provider, i.project) as project,
                   e.category is null or e.category <> all (i.opt_outs) as is_in
              from relevo.device_installations i
             where i.seq > e.fanout_cursor and i.seq <= e.fanout_upto and not i.for_news and relevo.may_receive(i)
             order by i.seq limit most) t;
  else
    select count(*) < most, max(t.seq), array_agg(t.installation_id) filter (where t.is_in), array_agg(t.provider) filter (where t.is_in),
           array_agg(t.project) filter (where t.is_in)
      into is_last, last_seq, phones, providers, projects
      from (select i.seq, i.installation_id, i.provider, relevo.sending_project(i.provider, i.project) as project,
                   e.category is null or e.category <> all (i.opt_outs) as is_in
              from relevo.device_installations i
             where i.project = e.project and i.seq > e.fanout_cursor and i.seq <= e.fanout_upto and not i.for_news and relevo.may_receive(i)
             order by i.seq limit most) t;
  end if;
  last_seq := coalesce(last_seq, e.fanout_upto);
end
$$;

revoke all on function relevo.everyone_targets from public;

-- Makes and queues the deliveries of the next slice of an event that this transaction has locked; returns no row if its month is sealed.
-- How it goes: find the stream that the brake watches, begin the event if this is its first slice, find the phones, leave out whoever got the
-- event before it, insert deliveries, queue them in chunks of a hundred, move the cursor, wake dispatch, count for the brake up to a hundred
-- phones. Of a stream that was stopped as a whole within the last hour nothing is made unless the caller judged it (`looked`): then the row is
-- all null.
create or replace function relevo.fan_out_slice(of_event relevo.notification_events, most int, watched boolean, looked boolean, step_aside boolean,
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
  t := case e.audience
         when 'matching' then relevo.matching_targets(e, most)
         when 'everyone' then relevo.everyone_targets(e, most)
         else relevo.named_targets(e, most)
       end;
  is_last := t.is_last;
  targets := coalesce(cardinality(t.phones), 0);
  if targets > 0 and (step_aside or exists (select from relevo.event_followers f where f.event_id = e.id)) then
    select w.* into targets, t.phones, t.providers, t.projects
      from relevo.leave_out_repeats(e, t.phones, t.providers, t.projects, step_aside) w;
  end if;
  created := coalesce(cardinality(t.phones), 0);
  if created > 0 then
    perform relevo.write_deliveries(e, at, t.phones, t.providers, t.projects);
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
      select b.* into counted, in_hour, busiest_day
        from relevo.count_slice(e, origin_of, stream, release, was_held, due, t.phones, enough) b;
      if counted is not null then
        projects := array(select distinct u.project from unnest(t.projects) as u(project));
      end if;
    end if;
  end if;
  return next;
end
$$;

revoke all on function relevo.fan_out_slice from public;

-- Returns of the phones of a slice those that get the event: without whoever got the event that this one follows and, with `step_aside`, without
-- those that have its delivery already. `targets` counts the latter, too.
create or replace function relevo.leave_out_repeats(e relevo.notification_events, of_phones uuid[], of_providers text[], of_projects text[],
    step_aside boolean, out targets int, out phones uuid[], out providers text[], out projects text[])
  language sql stable
as $$
  select count(*), array_agg(u.phone) filter (where not u.is_there), array_agg(u.provider) filter (where not u.is_there),
         array_agg(u.project) filter (where not u.is_there)
    from (select u.*, step_aside and exists (select from relevo.notification_deliveries d
                                              where d.event_day = e.event_day and d.notification_event_id = e.id
                                                and d.installation_id = u.phone offset 0) as is_there
            from unnest(of_phones, of_providers, of_projects) as u(phone, provider, project)
           where not exists (select from relevo.event_followers f
                               join relevo.notification_events o on o.id = f.former_event_id
                               join relevo.notification_deliveries d
                                 on d.event_day = o.event_day and d.notification_event_id = o.id and d.installation_id = u.phone
                              where f.event_id = e.id and d.status in ('sent', 'ok', 'unconfirmed', 'unknown') offset 0)) u
$$;

revoke all on function relevo.leave_out_repeats from public;

-- Returns the next phones with a preference that matches an event, up to a slice of candidates:
-- whether they are the last, the last one's sequence number, and of those that may receive it the ids, providers and sending projects.
-- Candidates come from the index of preferences: the first few in any order, more by windows of sequence numbers.
create or replace function relevo.matching_targets(e relevo.notification_events, most int,
    out is_last boolean, out last_seq bigint, out phones uuid[], out providers text[], out projects text[])
  language plpgsql volatile
as $$
declare
  few constant int := least(most, 300); -- of more it would not pay to read them twice
  buckets text[] := relevo.buckets_of(e);
  seqs bigint[];
  candidates int;
  window_end bigint := e.fanout_upto;
begin
  if e.fanout_cursor = 0 then -- most events have few: those are read in no order
    select count(*),
           array_agg(a.seq) filter (where a.sure or exists (select from relevo.notification_preferences p
                                                             where p.installation_id = a.installation_id and p.name = a.name
                                                               and relevo.preference_matches(p, e)))
      into candidates, seqs
      from (select x.seq, x.sure, x.installation_id, x.name from relevo.preference_index x
             where x.bucket = any (buckets) and x.seq > e.fanout_cursor and x.seq <= e.fanout_upto
             limit few) a;
  end if;
  if e.fanout_cursor > 0 or candidates = few then
    window_end := relevo.matching_window(buckets, e.fanout_cursor, e.fanout_upto, most);
    select count(*), max(a.seq),
           array_agg(a.seq) filter (where a.sure or exists (select from relevo.notification_preferences p
                                                             where p.installation_id = a.installation_id and p.name = a.name
                                                               and relevo.preference_matches(p, e)))
      into candidates, last_seq, seqs
      from (select x.seq, x.sure, x.installation_id, x.name -- with ties: all preferences of a phone are in one slice
              from relevo.preference_index x
             where x.bucket = any (buckets) and x.seq > e.fanout_cursor and x.seq <= window_end
             order by x.seq fetch first most rows with ties) a;
  end if;
  is_last := candidates < most and window_end >= e.fanout_upto;
  select array_agg(t.installation_id), array_agg(t.provider), array_agg(t.project)
    into phones, providers, projects
    from (select i.installation_id, i.provider, relevo.sending_project(i.provider, i.project) as project
            from relevo.device_installations i
           where i.seq = any (seqs) and relevo.may_receive(i)
             and (e.category is null or e.category <> all (i.opt_outs)) and (e.project is null or i.project = e.project)) t;
  last_seq := coalesce(last_seq, window_end); -- nobody in a window
end
$$;

revoke all on function relevo.matching_targets from public;

-- Returns the next phones that an event names, by themselves or by their owners, up to a slice of them:
-- whether they are the last, the last one's sequence number, and of those that may receive it the ids, providers and sending projects.
-- An audience that is longer than a slice is cut into slices once, and these are kept.
create or replace function relevo.named_targets(e relevo.notification_events, most int,
    out is_last boolean, out last_seq bigint, out phones uuid[], out providers text[], out projects text[])
  language plpgsql volatile
as $$
declare
  seqs bigint[];
  named uuid[];
begin
  if e.fanout_cursor > 0 then
    seqs := relevo.take_kept_slice(e);
  end if;
  if seqs is null then
    named := array(select a.installation_id from relevo.event_audience a where a.event_id = e.id
                   union all
                   select i.installation_id from relevo.event_owners o
                     cross join lateral (select i.installation_id from relevo.device_installations i where i.owner = o.owner offset 0) i
                    where o.event_id = e.id);
    if cardinality(named) > most then
      seqs := relevo.cut_slices(e, named, most);
    end if;
  end if;
  if seqs is not null then
    named := array(select i.installation_id from relevo.device_installations i -- whose owner changed since they were read is left out
                    where i.seq = any (seqs)
                      and (exists (select from relevo.event_audience a where a.event_id = e.id and a.installation_id = i.installation_id offset 0)
                           or exists (select from relevo.event_owners o where o.event_id = e.id and o.owner = i.owner offset 0)));
  end if;
  last_seq := seqs[cardinality(seqs)];
  is_last := seqs is null or not exists (select from relevo.fanout_slices s where s.event_id = e.id and s.last_seq > named_targets.last_seq);
  select array_agg(i.installation_id), array_agg(i.provider), array_agg(relevo.sending_project(i.provider, i.project))
    into phones, providers, projects
    from (select * from relevo.device_installations i where i.installation_id = any (named) offset 0) i -- not along all phones
   where i.seq > e.fanout_cursor and i.seq <= e.fanout_upto and relevo.may_receive(i)
     and (e.category is null or e.category <> all (i.opt_outs)) and (e.project is null or i.project = e.project);
  last_seq := coalesce(last_seq, e.fanout_upto);
end
$$;

revoke all on function relevo.named_targets from public;

-- Locks the event whose turn it is in a lane: the first of the next project in the round, skipping those that another replica holds, those that
-- wait for a retry, and those given up. A slice puts its event ten seconds back (fan_out_slice): whatever falls due meanwhile goes first.
create or replace function relevo.next_event(of_lane text, after_project text, given_up bigint[], at timestamptz) returns relevo.notification_events
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

revoke all on function relevo.next_event from public;

-- Takes the next kept slice of a named audience and returns its phones by sequence number; null if none is kept.
create or replace function relevo.take_kept_slice(e relevo.notification_events) returns bigint[]
  language plpgsql volatile
as $$
declare
  taken bigint[];
begin
  delete from relevo.fanout_slices s
   where s.event_id = e.id
     and s.last_seq = (select k.last_seq from relevo.fanout_slices k
                        where k.event_id = e.id and k.last_seq > e.fanout_cursor order by k.last_seq limit 1)
  returning s.seqs into taken;
  return taken;
end
$$;

revoke all on function relevo.take_kept_slice from public;

-- Writes the deliveries of a slice of an event, queues them in chunks of a hundred by project, and counts them.
create or replace function relevo.write_deliveries(e relevo.notification_events, at timestamptz, phones uuid[], providers text[], projects text[])
  returns void
  language plpgsql volatile
as $$
declare
  ids bigint[];
begin
  ids := array(select nextval('relevo.delivery_ids') from generate_series(1, cardinality(phones)));
  -- no `on conflict`: one that is there already and unknown to the event is told by the error, and the slice made anew beside it (step_aside);
  -- passed over in silence its chunk would name a delivery that was never made
  insert into relevo.notification_deliveries (event_day, id, notification_event_id, installation_id, event_type, provider, project, lane,
                                              at_most_once, deadline_at, created_at)
  select e.event_day, u.id, e.id, u.phone, e.event_type, u.provider, u.project, e.lane, e.at_most_once, e.deadline_at, now()
    from unnest(ids, phones, providers, projects) as u(id, phone, provider, project);
  if projects <@ projects[1:1] then
    insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                                   ids, installations)
    select projects[1], e.lane, at, e.event_day, e.id, e.event_type, now(), 0, 0, false, ids[n + 1 : n + 100], phones[n + 1 : n + 100]
      from generate_series(0, cardinality(phones) - 1, 100) as n;
  else
    insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                                   ids, installations)
    select u.project, e.lane, at, e.event_day, e.id, e.event_type, now(), 0, 0, false, array_agg(u.id), array_agg(u.phone)
      from (select u.*, (row_number() over (partition by u.project) - 1) / 100 as piece
              from unnest(ids, phones, projects) as u(id, phone, project)) u
     group by u.project, u.piece;
  end if;
  insert into relevo.event_progress_deltas (event_id, status, deliveries) values (e.id, 'pending', cardinality(phones));
end
$$;

revoke all on function relevo.write_deliveries from public;

-- Returns the buckets of the index under which preferences that may match an event stand, some perhaps twice. Like event_buckets, but for the
-- usual event without a query.
create or replace function relevo.buckets_of(e relevo.notification_events) returns text[]
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

revoke all on function relevo.buckets_of from public;

-- Returns an event as it would be written, as far as it says whom it reaches; refuses what writing it would refuse.
create or replace function relevo.draft_event(event jsonb, of_project text) returns relevo.notification_events
  language plpgsql stable
as $$
declare
  e relevo.notification_events;
  matching jsonb := coalesce(nullif(event -> 'matching', 'null'), '{}');
begin
  perform relevo.check_event(event);
  e.id := 0; -- nobody's
  e.project := of_project;
  e.audience := case event ->> 'audience' when 'owners' then 'installations' else event ->> 'audience' end;
  e.category := event ->> 'category';
  e.state := 'waiting';
  e.scheduled_at := coalesce(relevo.event_time(event, 'scheduled_at', null), now());
  e.deadline_at := relevo.check_deadline(
    coalesce(relevo.event_time(event, 'deadline_at', null), e.scheduled_at + interval '1 second' * coalesce((event ->> 'ttl_s')::numeric::int,
      (select t.ttl_s from relevo.event_types t where t.event_type = event ->> 'type'))), e.scheduled_at, null);
  e.match_topics := array(select distinct jsonb_array_elements_text(coalesce(nullif(event -> 'topics', 'null'), '[]')));
  e.match_rubros := array(select jsonb_array_elements_text(coalesce(nullif(matching -> 'rubros', 'null'), '[]')));
  e.match_prefixes := relevo.prefixes(e.match_rubros);
  e.match_region := relevo.region_key(matching ->> 'region');
  e.match_tipo := matching ->> 'tipo';
  e.match_monto := (matching ->> 'monto')::numeric(20, 2);
  e.match_moneda := matching ->> 'moneda';
  e.match_words := relevo.words(matching ->> 'text');
  return e;
end
$$;

revoke all on function relevo.draft_event from public;

-- Returns why an installation gets an event, enqueued or a draft, or not: whether the event names it, and for which owners it is, the caller
-- says. The first rule that decides is named, in the order of the cases, with the values it is about: a sentence in any language is made of
-- these, and `reason` is the one in English.
create or replace function relevo.explain_draft(e relevo.notification_events, names_it boolean, owners text[], installation uuid) returns jsonb
  language plpgsql stable
as $$
declare
  i relevo.device_installations;
  d relevo.notification_deliveries;
  done relevo.event_completions;
  fitting text;
  misses jsonb := '[]';
  rule text;
  why text;
  about jsonb := '{}';
  gets boolean := false;
begin
  select n.* into i from relevo.device_installations n where n.installation_id = installation;
  if e.event_day is not null then
    select n.* into d from relevo.notification_deliveries n
     where n.event_day = e.event_day and n.notification_event_id = e.id and n.installation_id = installation;
  end if;
  select c.* into done from relevo.event_completions c where c.event_id = e.id and c.owner = i.owner;
  if e.audience = 'matching' then
    select min(p.name) filter (where m.mismatch is null),
           coalesce(jsonb_agg(jsonb_build_object('name', p.name, 'differs_in', m.mismatch) order by p.name) filter (where m.mismatch is not null), '[]')
      into fitting, misses
      from relevo.notification_preferences p
      cross join lateral (select relevo.preference_mismatch(p, e) as mismatch) m
     where p.installation_id = installation;
  end if;
  case
    when e.id is null then
      rule := 'event_gone'; why := 'There is no such event, or it was archived.';
    when i.installation_id is null then
      rule := 'installation_gone'; why := 'There is no such installation.';
    when e.audience = 'everyone' and i.for_news then
      rule := 'not_named'; why := 'It is an address for news, and gets nothing else.'; about := jsonb_build_object('for_news', true);
    when e.audience = 'installations' and not (coalesce(names_it, false) or coalesce(i.owner = any (owners), false)) then
      rule := 'not_named'; why := 'The event is for others: it names neither this installation nor its owner.';
    when e.project <> i.project then
      rule := 'not_named'; why := format('The event is for the phones of project %s.', e.project); about := jsonb_build_object('project', e.project);
    when not relevo.may_receive(i) then
      rule := 'not_allowed'; why := format('Pushes may not go to it: %s.', relevo.why_not_allowed(i));
      about := jsonb_build_object('why_not', relevo.why_not_allowed(i));
    when e.category = any (i.opt_outs) then
      rule := 'opted_out'; why := format('It opted out of the category %s.', e.category); about := jsonb_build_object('category', e.category);
    when e.audience = 'matching' and misses = '[]' and fitting is null then
      rule := 'no_preference'; why := 'It has no preference, and so asks for nothing.';
    when e.audience = 'matching' and fitting is null then
      rule := 'preference_differs';
      why := format('None of its preferences matches: %s.', (select string_agg(case m ->> 'differs_in' when 'disabled' then format('%s is disabled', m ->> 'name')
               else format('%s differs in %s', m ->> 'name', m ->> 'differs_in') end, ', ') from jsonb_array_elements(misses) m));
    when done.event_id is not null then
      rule := 'handled_elsewhere'; why := 'Its owner handled the event on another phone' || coalesce(': ' || done.reason, '') || '.';
      about := jsonb_build_object('reason', done.reason);
    when d.id is not null and i.handled_before >= d.created_at then
      rule := 'handled_elsewhere'; why := 'Everything for it was handled elsewhere' || coalesce(': ' || i.handled_reason, '') || '.';
      about := jsonb_build_object('reason', i.handled_reason);
    when e.ended_at is not null then
      rule := 'event_ended'; why := format('The event was %s', e.state) || coalesce(': ' || e.end_reason, '') || '.';
      about := jsonb_build_object('state', e.state, 'reason', e.end_reason);
    when e.deadline_at <= now() and d.id is null then
      rule := 'deadline_passed'; why := 'Its deadline has passed.';
    when e.fanout_finished_at is not null and d.id is null then
      rule := 'came_later'; why := 'The event had fanned out before this installation could receive it.';
    else
      gets := true;
      rule := case when e.audience = 'matching' then 'preference'
                   when e.audience = 'everyone' then 'everyone'
                   when names_it then 'named'
                   else 'owner' end;
      why := case rule when 'preference' then format('Its preference %s matches.', fitting)
                       when 'everyone' then 'The event is for everyone.'
                       when 'named' then 'The event names this installation.'
                       else format('The event is for its owner, %s.', i.owner) end;
      about := case when rule = 'owner' then jsonb_build_object('owner', i.owner) else about end;
  end case;
  return jsonb_build_object('gets_it', coalesce(d.status in ('pending', 'retryable', 'sent', 'ok', 'unconfirmed', 'unknown'), gets), 'rule', rule, 'reason', why,
    'values', about, 'preference', fitting, 'differing_preferences', misses,
    'delivery', case when d.id is not null then jsonb_build_object('id', d.id, 'status', d.status, 'attempts', d.attempt_count,
                       'error_code', d.last_error_code, 'updated_at', d.updated_at) end);
end
$$;

revoke all on function relevo.explain_draft from public;

-- buckets_of as 0.3.0 calls it.
create or replace function relevo.buckets_of_1(e relevo.notification_events) returns text[]
  language sql immutable
as $$ select relevo.buckets_of($1) $$;

revoke all on function relevo.buckets_of_1 from public;

-- cut_slices as 0.3.0 calls it.
create or replace function relevo.cut_slices_1(e relevo.notification_events, named uuid[], most int) returns bigint[]
  language sql volatile
as $$ select relevo.cut_slices($1, $2, $3) $$;

revoke all on function relevo.cut_slices_1 from public;

-- fan_out_slice as 0.3.0 calls it.
create or replace function relevo.fan_out_slice_4(of_event relevo.notification_events, most int, watched boolean, looked boolean, step_aside
    boolean, enough int, given_at timestamptz) returns table (is_last boolean, targets int, created int, projects text[], counted uuid[],
    in_hour float8[], busiest_day int[])
  language sql volatile
as $$ select * from relevo.fan_out_slice($1, $2, $3, $4, $5, $6, $7) $$;

revoke all on function relevo.fan_out_slice_4 from public;

-- next_event as 0.3.0 calls it.
create or replace function relevo.next_event_1(of_lane text, after_project text, given_up bigint[], at timestamptz) returns
    relevo.notification_events
  language sql volatile
as $$ select relevo.next_event($1, $2, $3, $4) $$;

revoke all on function relevo.next_event_1 from public;

-- matching_targets, everyone_targets and named_targets as 0.3.0 calls them.
create or replace function relevo.next_targets_3(e relevo.notification_events, most int, out is_last boolean, out last_seq bigint, out
    phones uuid[], out providers text[], out projects text[])
  language sql volatile
as $$
  select * from relevo.matching_targets($1, $2) where ($1).audience = 'matching'
  union all
  select * from relevo.everyone_targets($1, $2) where ($1).audience = 'everyone'
  union all
  select * from relevo.named_targets($1, $2) where ($1).audience = 'installations'
$$;

revoke all on function relevo.next_targets_3 from public;

-- take_kept_slice as 0.3.0 calls it.
create or replace function relevo.take_kept_slice_1(e relevo.notification_events) returns bigint[]
  language sql volatile
as $$ select relevo.take_kept_slice($1) $$;

revoke all on function relevo.take_kept_slice_1 from public;

drop function relevo.claim_due_2(uuid,text,text,text,text,integer,timestamp with time zone,integer,integer,text[],text[],integer,integer);

drop function relevo.fan_out_slice_1(bigint,integer,boolean,boolean,timestamp with time zone);

drop function relevo.fan_out_small_1(text,timestamp with time zone,integer,integer,integer,bigint[],boolean,timestamp with time zone);

drop function relevo.pick_small_events_1(text,timestamp with time zone,integer,integer,bigint[],timestamp with time zone);

drop function relevo.slice_end_1(bigint,text,text[],bigint,bigint,integer);

drop function relevo.slice_targets(bigint,text,text[],bigint,bigint);

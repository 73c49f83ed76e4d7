-- needs relevo 0.1.0
-- What is cold stays exact: relations are known by their seal, months carry every column, archives are known by a marker, and of
-- a personal event only a hash of its key is kept.

-- A relation is known by its seal, which names the export: a dump and a load change every oid.
alter table relevo.archive_exports
  drop constraint archive_exports_check2,
  add constraint retired_months_are_counted check (retired_at is null or rows is not null);

comment on column relevo.archive_exports.relation_oid is 'No longer written: a load from a dump changes it.';

create table relevo.archive_stores (
  name          text primary key check (length(name) between 1 and 2000),
  archive_id    uuid not null,
  first_used_at timestamptz not null default now()
);

comment on table relevo.archive_stores is 'The stores that months were exported to, each with the id of the marker that lies in it.';

-- The seal itself: from now on the relation refuses every write, whoever it comes from; writers under way are waited for. It says
-- which export the relation is of.
create or replace function relevo.bar_writes(barred regclass) returns void language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  export uuid;
begin
  select x.export_id into strict export from relevo.archive_exports x join pg_class c on c.relname = x.relation where c.oid = barred;
  execute format('create or replace trigger sealed before insert or update or delete on %s for each row execute function relevo.refuse_sealed(%L)',
                 barred, export);
  execute format('create or replace trigger sealed_whole before truncate on %s for each statement execute function relevo.refuse_sealed(%L)',
                 barred, export);
end
$$;

-- Whether a relation bears the seal of an export, and nobody has broken it.
create function relevo.is_sealed_as(cold regclass, export uuid) returns boolean language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select count(*) = 2 from pg_trigger t
   where t.tgrelid = cold and t.tgname in ('sealed', 'sealed_whole') and t.tgenabled in ('O', 'A')
     and t.tgfoid = 'relevo.refuse_sealed()'::regprocedure and t.tgargs = convert_to(export::text, 'UTF8') || '\x00'::bytea
$$;

-- Relations that were sealed before the seal named the export.
do $$
declare
  sealed regclass;
begin
  for sealed in select c.oid::regclass from relevo.archive_exports x join pg_class c on c.relname = x.relation
                 where c.relnamespace::regnamespace::text in ('relevo', 'relevo_archive') and x.state in ('sealed', 'retired', 'exported', 'verified')
                   and exists (select from pg_trigger t where t.tgrelid = c.oid and t.tgname = 'sealed' and t.tgfoid = 'relevo.refuse_sealed()'::regprocedure) loop
    perform relevo.bar_writes(sealed);
  end loop;
end
$$;

-- Retires a sealed month: detached and moved in one transaction, without touching a row.
create or replace function relevo.retire_month(of_entity text, of_month date) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  place text := of_entity || to_char(of_month, '_YYYY_MM');
  old_name text;
  new_name text;
begin
  perform from relevo.archive_exports where entity = of_entity and month = of_month and state = 'sealed' for update;
  if not found then
    raise exception 'the month % of % is not sealed', to_char(of_month, 'YYYY-MM'), of_entity;
  end if;
  execute format('alter table relevo.%I detach partition relevo.%I', of_entity, place);
  -- PostgreSQL shortens the names of a partition's indexes, and gives a name that is free again to a later one
  for old_name, new_name in select i.indexrelid::regclass::text, place || '_' || row_number() over (order by i.indexrelid)
                              from pg_index i where i.indrelid = format('relevo.%I', place)::regclass loop
    execute format('alter index %s rename to %I', old_name, new_name);
  end loop;
  execute format('alter table relevo.%I set schema relevo_archive', place);
  perform relevo.share_grants(of_entity, format('relevo_archive.%I', place)::regclass);
  update relevo.archive_exports set state = 'retired', retired_at = now(), updated_at = now() where entity = of_entity and month = of_month;
end
$$;

-- Seals a month of a plain table once nothing of it is left in the hot one; says whether it did.
create or replace function relevo.finish_moving(of_entity text, of_month date) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  place text := of_entity || to_char(of_month, '_YYYY_MM');
  moved bigint;
begin
  if (of_entity = 'licitaciones' and exists (
        select from relevo.licitaciones l
         where l.created_at >= of_month::timestamp at time zone 'UTC' and l.created_at < (of_month + interval '1 month') at time zone 'UTC'))
     or (of_entity = 'notification_events' and exists (
        select from relevo.notification_events e where relevo.event_month(e) = of_month)) then
    return false;
  end if;
  perform relevo.bar_writes(format('relevo_archive.%I', place)::regclass);
  execute format('select count(*) from relevo_archive.%I', place) into moved;
  update relevo.archive_exports
     set state = 'retired', rows = moved, sealed_at = now(), retired_at = now(), updated_at = now()
   where entity = of_entity and month = of_month and state = 'moving';
  return found;
end
$$;

-- Drops a month that was verified and whose grace is over: exactly the relation that was exported, or nothing.
create or replace function relevo.drop_retired(of_entity text, of_month date, at timestamptz) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  x relevo.archive_exports;
begin
  select * into x from relevo.archive_exports
   where entity = of_entity and month = of_month and state = 'verified' and drop_eligible_at <= coalesce(at, now()) for update;
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
  update relevo.archive_exports set state = 'dropped', dropped_at = coalesce(at, now()), updated_at = now(), last_error = null
   where entity = of_entity and month = of_month;
  return true;
end
$$;

-- Gives the table into which a month moves every column that its hot table has got since, and refuses one that has changed: what is
-- moved is deleted from the hot table, and must not lose a value. The hot table is locked as it is for a delete, so that no column
-- comes before the rows have gone. Only what a fan-out works with, or what is computed from others, stays behind.
create function relevo.carry_columns(of_entity text, of_month date) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  place text := of_entity || to_char(of_month, '_YYYY_MM');
  of_column record;
begin
  execute format('lock table relevo.%I in row exclusive mode', of_entity);
  for of_column in
    select h.attname as name, format_type(h.atttypid, h.atttypmod) as type, format_type(c.atttypid, c.atttypmod) as cold_type
      from pg_attribute h
      left join pg_attribute c on c.attrelid = format('relevo_archive.%I', place)::regclass and c.attname = h.attname and not c.attisdropped
     where h.attrelid = format('relevo.%I', of_entity)::regclass and h.attnum > 0 and not h.attisdropped
       and (of_entity <> 'notification_events' or h.attname <> all (array['fanout_upto', 'fanout_cursor', 'swept_at', 'match_prefixes']))
       and (c.attname is null or (c.atttypid, c.atttypmod) is distinct from (h.atttypid, h.atttypmod))
     order by h.attnum
  loop
    if of_column.cold_type is not null then
      raise exception using errcode = 'object_not_in_prerequisite_state',
        message = format('column %I of relevo.%I is of type %s, and that of relevo_archive.%I, into which its month moves, of type %s',
                         of_column.name, of_entity, of_column.type, place, of_column.cold_type),
        hint = 'Alter the cold one alike; nothing was moved.';
    end if;
    execute format('alter table relevo_archive.%I add column %I %s', place, of_column.name, of_column.type);
  end loop;
end
$$;

-- Moves a batch of a month's items to the cold table and says how many.
create or replace function relevo.retire_items(of_month date, rows_per_part int, most int) returns int
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  place text := relevo.open_cold_table('licitaciones', of_month, rows_per_part);
  columns text; -- those that both have: one that was dropped since is null in what comes later
  moved int;
begin
  perform relevo.carry_columns('licitaciones', of_month);
  select string_agg(format('%I', a.attname), ', ' order by a.attnum) into columns
    from pg_attribute a
    join pg_attribute h on h.attrelid = 'relevo.licitaciones'::regclass and h.attname = a.attname and not h.attisdropped
   where a.attrelid = format('relevo_archive.%I', place)::regclass and a.attnum > 0 and not a.attisdropped;
  execute format($sql$
    with old as materialized (
      select l.id from relevo.licitaciones l
       where l.created_at >= $1::timestamp at time zone 'UTC' and l.created_at < ($1 + interval '1 month') at time zone 'UTC'
       order by l.created_at, l.id limit $2 for update
    ), gone as (
      delete from relevo.licitaciones l using old where l.id = old.id returning l.*
    )
    insert into relevo_archive.%1$I (%2$s) select %2$s from gone$sql$, place, columns)
  using of_month, most;
  get diagnostics moved = row_count;
  return moved;
end
$$;

-- The key by which an event is known once nobody may learn its own: a hash, which can be looked up and not be read.
create function relevo.hidden_key(event_type text, event_key text) returns text language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select case when event_key ~ '^sha256:[0-9a-f]{64}$' then event_key
              else 'sha256:' || encode(sha256(convert_to(event_type || chr(10) || event_key, 'UTF8')), 'hex') end
$$;

-- Moves a batch of a month's events to the cold table, with the sums of their deliveries; their keys stay, those of personal events as
-- a hash. Of personal events the cold table gets only what is named here, and of the others every column.
create or replace function relevo.retire_events(of_month date, rows_per_part int, most int) returns int
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  place text := relevo.open_cold_table('notification_events', of_month, rows_per_part);
  impersonal text[] := array['id', 'event_type', 'licitacion_id', 'audience', 'category', 'lane', 'at_most_once', 'scheduled_at', 'deadline_at', 'state',
    'event_day', 'fanout_started_at', 'fanout_finished_at', 'first_sent_at', 'targets_selected', 'deliveries_created', 'ended_at', 'created_at', 'updated_at'];
  columns text;
  contents text;
  ids bigint[];
  moved int;
begin
  perform relevo.carry_columns('notification_events', of_month);
  select string_agg(format('%I', a.attname), ', ' order by a.attnum),
         string_agg(case when h.attname is null then $sql$coalesce(t.deliveries, '{}')$sql$
                         when h.attname = any (impersonal) then format('g.%I', h.attname)
                         else format($sql$case when g.audience <> 'installations' then g.%I end$sql$, h.attname) end, ', ' order by a.attnum)
    into columns, contents
    from pg_attribute a
    left join pg_attribute h on h.attrelid = 'relevo.notification_events'::regclass and h.attname = a.attname and not h.attisdropped
   where a.attrelid = format('relevo_archive.%I', place)::regclass and a.attnum > 0 and not a.attisdropped
     and (h.attname is not null or a.attname = 'deliveries');
  ids := array(select e.id from relevo.notification_events e
                where relevo.event_is_over(e) and relevo.event_month(e) = of_month order by e.id limit most for update);
  -- the changes first: a reaper that is folding them is waited for
  with folded as (
    delete from relevo.event_progress_deltas d where d.event_id = any (ids) returning d.event_id, d.status, d.deliveries
  )
  insert into relevo.event_progress as p (event_id, status, deliveries)
  select f.event_id, f.status, sum(f.deliveries) from folded f group by f.event_id, f.status order by f.event_id, f.status
  on conflict (event_id, status) do update set deliveries = p.deliveries + excluded.deliveries;
  execute format($sql$
    with sums as (
      delete from relevo.event_progress p where p.event_id = any ($1) returning p.event_id, p.status, p.deliveries
    ), told as (
      select s.event_id, jsonb_object_agg(s.status, s.deliveries) filter (where s.deliveries <> 0) as deliveries from sums s group by s.event_id
    ), gone as (
      delete from relevo.notification_events e where e.id = any ($1) returning e.*
    ), kept as (
      insert into relevo.event_keys (event_type, event_key, event_id, content_hash, state, month)
      select g.event_type, case when g.audience = 'installations' then relevo.hidden_key(g.event_type, g.event_key) else g.event_key end, g.id,
             case when g.audience = 'installations' then '' else g.content_hash end, g.state, $2
        from gone g
    )
    insert into relevo_archive.%I (%s)
    select %s
      from gone g
      left join told t on t.event_id = g.id$sql$, place, columns, contents)
  using ids, of_month;
  get diagnostics moved = row_count;
  return moved;
end
$$;

-- Keys of personal events that were retired before; where it is not known any more whether one was personal, it is hidden, too.
do $$
declare
  of_month date;
  place text;
begin
  for of_month in select distinct k.month from relevo.event_keys k loop
    place := format('relevo_archive.%I', 'notification_events' || to_char(of_month, '_YYYY_MM'));
    if to_regclass(place) is null then
      update relevo.event_keys k set event_key = relevo.hidden_key(k.event_type, k.event_key), content_hash = '' where k.month = of_month;
    else
      execute format($sql$
        update relevo.event_keys k set event_key = relevo.hidden_key(k.event_type, k.event_key), content_hash = ''
          from %s e where e.id = k.event_id and k.month = $1 and e.audience = 'installations'$sql$, place) using of_month;
    end if;
  end loop;
end
$$;

-- Forgets a person: the installation with all that leads to anybody, and what was said to it alone, but for a hash of its key, which
-- dedups. Deliveries keep a random key.
create or replace function relevo.forget_installation(installation uuid) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  known boolean;
  alone bigint[];
begin
  delete from relevo.device_installations where installation_id = installation;
  known := found;
  alone := array(select a.event_id from relevo.event_audience a
                  where a.installation_id = installation
                    and not exists (select from relevo.event_audience o where o.event_id = a.event_id and o.installation_id <> installation));
  perform relevo.end_event(e, 'cancelled', 'the installation was forgotten') from unnest(alone) as e;
  update relevo.notification_events
     set event_key = relevo.hidden_key(event_type, event_key), title = 'forgotten', body = '', data = '{}', push = '{}', content_hash = '',
         match_rubros = '{}', match_region = null, match_tipo = null, match_monto = null, match_moneda = null, match_words = null,
         end_reason = case when end_reason is not null then 'the installation was forgotten' end
   where id = any (alone);
  delete from relevo.event_audience where installation_id = installation;
  return known or cardinality(alone) > 0;
end
$$;

-- Enqueues events, the app's commit decides; one row each, in order: its id, whether it is new, whether an old one says the same (null
-- if that is not known any more).
create or replace function relevo.enqueue_many(events jsonb) returns table (event_id bigint, created boolean, same_content boolean)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  event jsonb;
  kind relevo.event_types;
  keys text[]; -- its own, and the one by which it is known if it was personal and is old or forgotten
  hash text;
  at timestamptz;
  until timestamptz;
  made boolean := false;
begin
  if jsonb_typeof(events) is distinct from 'array' or jsonb_array_length(events) > 100000 then
    perform relevo.refuse('events must be a list of at most 100000 events');
  end if;
  for event in select e from jsonb_array_elements(events) as e loop
    perform relevo.check_event(event);
    hash := encode(sha256(convert_to(jsonb_strip_nulls(event)::text, 'UTF8')), 'hex');
    keys := array[event ->> 'key', relevo.hidden_key(event ->> 'type', event ->> 'key')];
    kind := null;
    select t.* into kind from relevo.event_types t where t.event_type = event ->> 'type';
    at := coalesce(relevo.event_time(event, 'scheduled_at'), now());
    until := coalesce(relevo.event_time(event, 'deadline_at'), at + coalesce((event ->> 'ttl_s')::numeric::int, kind.ttl_s) * interval '1 second');
    created := false;
    loop
      select n.id, nullif(n.content_hash, '') = hash into event_id, same_content from relevo.notification_events n
       where n.event_type = event ->> 'type' and n.event_key = any (keys);
      exit when found;
      -- after the events: one that is retired between the two looks leaves its key with the same commit
      select k.event_id, nullif(k.content_hash, '') = hash into event_id, same_content from relevo.event_keys k
       where k.event_type = event ->> 'type' and k.event_key = any (keys);
      exit when found;
      if until <= greatest(at, now()) then
        perform relevo.refuse(format('deadline_at must lie after now and after scheduled_at, got %s', until));
      end if;
      insert into relevo.notification_events as n (event_type, event_key, licitacion_id, title, body, data, push, audience, category,
        lane, at_most_once, scheduled_at, deadline_at, match_rubros, match_region, match_tipo, match_monto, match_moneda, match_words,
        content_hash)
      values (event ->> 'type', event ->> 'key', (event ->> 'licitacion_id')::numeric::bigint, event ->> 'title', coalesce(event ->> 'body', ''),
        coalesce(nullif(event -> 'data', 'null'), '{}'), coalesce(nullif(event -> 'push', 'null'), '{}'),
        event ->> 'audience', event ->> 'category',
        coalesce(event ->> 'lane', kind.lane, 'bulk'), coalesce((event ->> 'at_most_once')::boolean, kind.at_most_once, false), at, until,
        array(select jsonb_array_elements_text(coalesce(nullif(event #> '{matching,rubros}', 'null'), '[]'))),
        relevo.region_key(event #>> '{matching,region}'), event #>> '{matching,tipo}',
        (event #>> '{matching,monto}')::numeric, event #>> '{matching,moneda}', relevo.words(event #>> '{matching,text}'), hash)
      on conflict (event_type, event_key) do nothing
      returning n.id into event_id;
      created := found;
      exit when created;
      -- somebody else was faster; only a new statement sees whose it is
    end loop;
    if created then
      made := true;
      same_content := true;
      insert into relevo.event_audience (event_id, installation_id)
      select enqueue_many.event_id, i::uuid from jsonb_array_elements_text(coalesce(nullif(event -> 'installations', 'null'), '[]')) as i
      on conflict do nothing;
    end if;
    return next;
  end loop;
  if made then
    perform relevo.wake('fanout');
  end if;
end
$$;

revoke all on function relevo.is_sealed_as(regclass, uuid), relevo.carry_columns(text, date), relevo.hidden_key(text, text) from public;

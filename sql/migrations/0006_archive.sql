-- needs relevo 0.1.0
-- The past: months that are sealed, retired, exported, verified and dropped; keys that dedup for ever; forgetting a person.

-- A role that owns only the schema relevo may not make another one; cleanup says then who has to.
do $$
begin
  if to_regnamespace('relevo_archive') is null then
    create schema relevo_archive;
  end if;
exception when insufficient_privilege then
  raise notice 'the schema relevo_archive is missing';
end
$$;

create table relevo.archive_exports (
  entity           text not null check (entity in ('licitaciones', 'notification_events', 'notification_deliveries', 'push_requests')),
  month            date not null check (extract(day from month) = 1),
  state            text not null check (state in ('moving', 'sealed', 'retired', 'exported', 'verified', 'dropped')),
  relation         text not null,
  relation_oid     oid,
  export_id        uuid not null default gen_random_uuid(),
  part_rows        integer not null check (part_rows > 0),
  parts            integer,
  rows             bigint,
  bytes            bigint,
  manifest_sha256  text check (length(manifest_sha256) = 64),
  sealed_at        timestamptz,
  retired_at       timestamptz,
  exported_at      timestamptz,
  verified_at      timestamptz,
  drop_eligible_at timestamptz,
  dropped_at       timestamptz,
  mismatches       integer not null default 0,
  last_error       text check (length(last_error) between 1 and 500),
  updated_at       timestamptz not null default now(),
  primary key (entity, month),
  check ((state = 'moving') = (sealed_at is null)),
  check ((state in ('retired', 'exported', 'verified', 'dropped')) = (retired_at is not null)),
  check (retired_at is null or num_nulls(relation_oid, rows) = 0),
  check ((state in ('exported', 'verified', 'dropped')) = (exported_at is not null)),
  check ((state in ('verified', 'dropped')) = (verified_at is not null)),
  check ((verified_at is null) = (drop_eligible_at is null)),
  check ((state = 'dropped') = (dropped_at is not null)),
  check (exported_at is null or num_nulls(parts, rows, bytes, manifest_sha256) = 0)
);

comment on table relevo.archive_exports is 'One row per entity and month that left the hot tables: moving or sealed, retired, exported, verified, dropped.';

create table relevo.archive_parts (
  entity         text not null,
  month          date not null,
  part           integer not null check (part > 0),
  first_key      text[] not null,
  last_key       text[] not null,
  rows           bigint not null check (rows > 0),
  bytes          bigint not null check (bytes > 0),
  file_sha256    text not null check (length(file_sha256) = 64),
  content_sha256 text not null check (length(content_sha256) = 64),
  uploaded_at    timestamptz not null default now(),
  verified_at    timestamptz,
  primary key (entity, month, part),
  foreign key (entity, month) references relevo.archive_exports
);

comment on table relevo.archive_parts is 'One Parquet file of a month: a fixed range of its sorted rows, the hash of the file and of the rows in it.';

create table relevo.event_keys (
  event_type   text not null,
  event_key    text not null,
  event_id     bigint not null unique,
  content_hash text not null,
  state        text not null,
  month        date not null,
  primary key (event_type, event_key)
);

comment on table relevo.event_keys is 'The keys of retired events; never retired, for they are what dedups.';

-- Bounds that every written value meets, so that every value fits into a file; rows from before were written by the same code.
alter table relevo.notification_deliveries add constraint times_fit_an_archive check (
  event_day >= '1900-01-01' and event_day <= '2300-01-01'
  and least(next_attempt_at, deadline_at, last_attempt_at, completed_at, created_at, updated_at) >= '1900-01-01Z'
  and greatest(next_attempt_at, deadline_at, last_attempt_at, completed_at, created_at, updated_at) <= '2300-01-01Z') not valid;
alter table relevo.push_requests add constraint times_fit_an_archive check (
  request_day >= '1900-01-01' and request_day <= '2300-01-01'
  and least(journalled_at, answered_at) >= '1900-01-01Z' and greatest(journalled_at, answered_at) <= '2300-01-01Z') not valid;
alter table relevo.notification_events add constraint values_fit_an_archive check (
  event_day >= '1900-01-01' and event_day <= '2300-01-01' and match_monto is distinct from 'NaN'
  and least(scheduled_at, deadline_at, fanout_started_at, fanout_finished_at, ended_at, created_at, updated_at) >= '1900-01-01Z'
  and greatest(scheduled_at, deadline_at, fanout_started_at, fanout_finished_at, ended_at, created_at, updated_at) <= '2300-01-01Z') not valid;
alter table relevo.licitaciones add constraint values_fit_an_archive check (
  monto is distinct from 'NaN' and least(created_at, updated_at) >= '1900-01-01Z' and greatest(created_at, updated_at) <= '2300-01-01Z') not valid;

-- Keeps the months of these days from being sealed until this transaction ends, and returns the days whose month is open.
create function relevo.hold_open(days date[]) returns date[]
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  month_name text;
begin
  for month_name in select distinct to_char(d, 'YYYY-MM') from unnest(days) as d order by 1 loop
    perform pg_advisory_xact_lock_shared(hashtextextended('relevo.month:' || month_name, 0));
  end loop;
  -- a new statement: it sees a seal that was waited for
  return array(select d from unnest(days) as d
                where not exists (select from relevo.archive_exports x
                                   where x.entity = 'notification_deliveries' and x.month = date_trunc('month', d::timestamp)::date));
end
$$;

create function relevo.refuse_sealed() returns trigger language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using errcode = 'object_not_in_prerequisite_state',
    message = format('%I.%I is sealed for the archive', tg_table_schema, tg_table_name),
    hint = 'Nothing is written to a month that is past its retention.';
end
$$;

-- The seal itself: from now on the relation refuses every write, whoever it comes from; writers under way are waited for.
create function relevo.bar_writes(barred regclass) returns void language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  execute format('create trigger sealed before insert or update or delete on %s for each row execute function relevo.refuse_sealed()', barred);
  execute format('create trigger sealed_whole before truncate on %s for each statement execute function relevo.refuse_sealed()', barred);
end
$$;

-- Lets whoever reads an entity's hot table read what was retired of it.
create function relevo.share_grants(of_entity text, cold regclass) returns void language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  reader text;
begin
  for reader in select distinct a.grantee::regrole::text
                  from pg_class c cross join aclexplode(c.relacl) a
                 where c.oid = format('relevo.%I', of_entity)::regclass and a.privilege_type = 'SELECT' and a.grantee not in (0, c.relowner) loop
    execute format('grant usage on schema relevo_archive to %s', reader);
    execute format('grant select on %s to %s', cold, reader);
  end loop;
end
$$;

-- Whether something of a month is still to be written: deliveries to be sent or confirmed, requests of a claim that lives. By the
-- indexes of these, so that no other row is read for it.
create function relevo.is_open(of_entity text, of_month date) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp set enable_seqscan = off
as $$
declare
  place text := of_entity || to_char(of_month, '_YYYY_MM');
  answer boolean;
begin
  if of_entity = 'notification_deliveries' then
    execute format($sql$select exists (select from relevo.%1$I d where d.status in ('pending', 'retryable'))
                            or exists (select from relevo.%1$I d where d.status = 'sent')$sql$, place) into answer;
  else
    execute format($sql$select exists (select from relevo.claims c join relevo.%I r on r.claim_token = c.token and r.answered_at is null)$sql$,
                   place) into answer;
  end if;
  return answer;
end
$$;

-- Ends, with a reason, so many of a month's deliveries that are still open and unclaimed, and says how many.
create function relevo.close_deliveries(of_month date, most int, at timestamptz) returns int
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp set enable_seqscan = off
as $$
declare
  ended int;
begin
  execute format($sql$
    with unsent as materialized (
      select d.event_day, d.id, d.status from relevo.%1$I d where d.status in ('pending', 'retryable') and d.claim_token is null limit $2 for update
    ), unconfirmed as materialized (
      select d.event_day, d.id, d.status from relevo.%1$I d where d.status = 'sent' and d.claim_token is null limit $2 for update
    ), closed as (
      update relevo.%1$I d
         set status = case when o.status = 'sent' then 'unconfirmed' else 'expired' end, next_attempt_at = null, completed_at = $1, updated_at = $1,
             last_error_code = 'retired',
             last_error_message = case when o.status = 'sent' then 'No receipt came before its month was archived.'
                                       else 'It was not sent before its month was archived.' end
        from (select * from unsent union all select * from unconfirmed) o
       where d.event_day = o.event_day and d.id = o.id
      returning d.notification_event_id as event_id, d.status, o.status as former_status
    ), told as (
      insert into relevo.event_progress_deltas (event_id, status, deliveries)
      select m.event_id, m.status, sum(m.n)::int
        from (select c.event_id, c.status, 1 as n from closed c
              union all
              select c.event_id, c.former_status, -1 from closed c) m
       group by m.event_id, m.status
    )
    select count(*)::int from closed$sql$, 'notification_deliveries' || to_char(of_month, '_YYYY_MM'))
  into ended using coalesce(at, now()), most;
  return ended;
end
$$;

-- Seals a month of a partitioned table, under the lock that fan-out, settle and redrive share; says no if something of it is open.
create function relevo.seal_month(of_entity text, of_month date, rows_per_part int) returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  place text := of_entity || to_char(of_month, '_YYYY_MM');
begin
  perform pg_advisory_xact_lock(hashtextextended('relevo.month:' || to_char(of_month, 'YYYY-MM'), 0));
  execute format('lock table relevo.%I in share row exclusive mode', place);
  -- who wrote before is through now: what was opened meanwhile is seen, and keeps the month open; what is claimed is open
  if relevo.is_open(of_entity, of_month) then
    return false;
  end if;
  if of_entity = 'notification_deliveries' then
    update relevo.notification_events e
       set state = 'cancelled', ended_at = now(), swept_at = now(), updated_at = now(),
           end_reason = 'its month was archived before its fan-out was finished'
     where e.state = 'fanning' and date_trunc('month', e.event_day::timestamp)::date = of_month;
  end if;
  insert into relevo.archive_exports (entity, month, state, relation, part_rows, sealed_at)
  values (of_entity, of_month, 'sealed', place, rows_per_part, now());
  perform relevo.bar_writes(format('relevo.%I', place)::regclass);
  return true;
end
$$;

-- Counts the rows in a range of blocks of a month.
create function relevo.count_rows(of_entity text, of_month date, from_block bigint, blocks bigint) returns bigint
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  rows bigint;
begin
  execute format('select count(*) from relevo.%I d where d.ctid >= $1 and d.ctid < $2', of_entity || to_char(of_month, '_YYYY_MM'))
  into rows using format('(%s,0)', from_block)::tid, format('(%s,0)', from_block + blocks)::tid;
  return rows;
end
$$;

-- Retires a sealed month: detached and moved in one transaction, without touching a row.
create function relevo.retire_month(of_entity text, of_month date) returns void
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
  update relevo.archive_exports
     set state = 'retired', retired_at = now(), updated_at = now(), relation_oid = format('relevo_archive.%I', place)::regclass
   where entity = of_entity and month = of_month;
end
$$;

-- The month to which an event belongs once it is over: that of its fan-out, or, without one, of its end.
create function relevo.event_month(e relevo.notification_events) returns date language sql immutable
  return date_trunc('month', coalesce(e.event_day, (e.ended_at at time zone 'UTC')::date)::timestamp)::date;

-- Whether nothing more can happen to an event.
create function relevo.event_is_over(e relevo.notification_events) returns boolean language sql immutable
  return e.state = 'fanned' or (e.ended_at is not null and (e.swept_at is not null or e.event_day is null));

-- By these the oldest month of either is found, and its rows in order, without looking at the others.
create index notification_events_by_month on relevo.notification_events
  ((date_trunc('month', coalesce(event_day, (ended_at at time zone 'UTC')::date)::timestamp)::date), id);
create index licitaciones_by_age on relevo.licitaciones (created_at, id);

-- Makes the table into which a month of a plain table moves, unless it is there. Of personal events it has no place for their text.
create function relevo.open_cold_table(of_entity text, of_month date, rows_per_part int) returns text
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  place text := of_entity || to_char(of_month, '_YYYY_MM');
begin
  insert into relevo.archive_exports (entity, month, state, relation, part_rows)
  values (of_entity, of_month, 'moving', place, rows_per_part) on conflict do nothing;
  if not found then
    return place;
  end if;
  if of_entity = 'licitaciones' then
    execute format('create table relevo_archive.%I (like relevo.licitaciones including constraints, primary key (id))', place);
  else
    execute format($sql$
      create table relevo_archive.%I (
        id bigint primary key, event_type text not null, event_key text, licitacion_id bigint, title text, body text, data jsonb, push jsonb,
        audience text not null, category text, lane text not null, at_most_once boolean not null, scheduled_at timestamptz not null,
        deadline_at timestamptz, match_rubros text[], match_region text, match_tipo text, match_monto numeric(20, 2), match_moneda text,
        match_words text, content_hash text, state text not null, event_day date, fanout_started_at timestamptz, fanout_finished_at timestamptz,
        targets_selected bigint not null, deliveries_created bigint not null, deliveries jsonb not null, ended_at timestamptz, end_reason text,
        created_at timestamptz not null, updated_at timestamptz not null,
        check (audience <> 'installations' or num_nonnulls(event_key, title, body, data, push, content_hash, end_reason,
          match_rubros, match_region, match_tipo, match_monto, match_moneda, match_words) = 0))$sql$, place);
  end if;
  perform relevo.share_grants(of_entity, format('relevo_archive.%I', place)::regclass);
  return place;
end
$$;

-- Moves a batch of a month's items to the cold table and says how many.
create function relevo.retire_items(of_month date, rows_per_part int, most int) returns int
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  place text := relevo.open_cold_table('licitaciones', of_month, rows_per_part);
  columns text; -- those of the cold table: a column that was added since has no place in a month half way through
  moved int;
begin
  select string_agg(format('%I', a.attname), ', ' order by a.attnum) into columns
    from pg_attribute a where a.attrelid = format('relevo_archive.%I', place)::regclass and a.attnum > 0 and not a.attisdropped;
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

-- Moves a batch of a month's events to the cold table, with the sums of their deliveries; their keys stay.
create function relevo.retire_events(of_month date, rows_per_part int, most int) returns int
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  ids bigint[];
  moved int;
begin
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
      select g.event_type, g.event_key, g.id, g.content_hash, g.state, $2 from gone g
    )
    insert into relevo_archive.%I
    select g.id, g.event_type, case when open then g.event_key end, g.licitacion_id, case when open then g.title end,
           case when open then g.body end, case when open then g.data end, case when open then g.push end, g.audience, g.category, g.lane,
           g.at_most_once, g.scheduled_at, g.deadline_at, case when open then g.match_rubros end, case when open then g.match_region end,
           case when open then g.match_tipo end, case when open then g.match_monto end, case when open then g.match_moneda end,
           case when open then g.match_words end, case when open then g.content_hash end, g.state, g.event_day, g.fanout_started_at, g.fanout_finished_at,
           g.targets_selected, g.deliveries_created, coalesce(t.deliveries, '{}'), g.ended_at, case when open then g.end_reason end,
           g.created_at, g.updated_at
      from gone g
      cross join lateral (select g.audience <> 'installations' as open) o
      left join told t on t.event_id = g.id$sql$, relevo.open_cold_table('notification_events', of_month, rows_per_part))
  using ids, of_month;
  get diagnostics moved = row_count;
  return moved;
end
$$;

-- Seals a month of a plain table once nothing of it is left in the hot one; says whether it did.
create function relevo.finish_moving(of_entity text, of_month date) returns boolean
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
     set state = 'retired', rows = moved, sealed_at = now(), retired_at = now(), updated_at = now(), relation_oid = format('relevo_archive.%I', place)::regclass
   where entity = of_entity and month = of_month and state = 'moving';
  return found;
end
$$;

-- Drops a month that was verified and whose grace is over: exactly the relation that was exported, or nothing.
create function relevo.drop_retired(of_entity text, of_month date, at timestamptz) returns boolean
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
  if to_regclass(format('relevo_archive.%I', x.relation)) is distinct from x.relation_oid::regclass then
    raise exception 'relevo_archive.% is not the relation that was exported', x.relation;
  end if;
  execute format('drop table relevo_archive.%I', x.relation);
  update relevo.archive_exports set state = 'dropped', dropped_at = coalesce(at, now()), updated_at = now() where entity = of_entity and month = of_month;
  return true;
end
$$;

-- Forgets a person: the installation with all that leads to anybody, and what was said to it alone. Deliveries keep a random key.
create function relevo.forget_installation(installation uuid) returns boolean
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
     set title = 'forgotten', body = '', data = '{}', push = '{}', content_hash = '', match_rubros = '{}', match_region = null,
         match_tipo = null, match_monto = null, match_moneda = null, match_words = null,
         end_reason = case when end_reason is not null then 'the installation was forgotten' end
   where id = any (alone);
  delete from relevo.event_audience where installation_id = installation;
  return known or cardinality(alone) > 0;
end
$$;

-- Makes the monthly partitions of deliveries and journal from first_month on, says how many were new; safe to call at once.
-- A month that was sealed gets none: what came late to it would be in no export.
create or replace function relevo.ensure_partitions(first_month date, months int) returns int
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  parent text;
  month_start date;
  partition_name text;
  made int := 0;
begin
  foreach parent in array array['notification_deliveries', 'push_requests'] loop
    for i in 0 .. months - 1 loop
      month_start := (date_trunc('month', first_month::timestamp) + make_interval(months => i))::date;
      partition_name := parent || to_char(month_start, '_YYYY_MM');
      continue when to_regclass(format('relevo.%I', partition_name)) is not null;
      continue when exists (select from relevo.archive_exports x where x.entity = parent and x.month = month_start);
      perform pg_advisory_xact_lock(hashtextextended('relevo.ensure_partitions', 0));
      -- made by another while we waited? Asked of the table, for to_regclass remembers its first answer
      continue when exists (select from pg_class c where c.relnamespace = 'relevo'::regnamespace and c.relname = partition_name);
      execute format('create table relevo.%I (like relevo.%I including defaults including constraints) with '
        '(fillfactor = %s, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, '
        'autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0, '
        'autovacuum_analyze_scale_factor = 0.02)', partition_name, parent, case parent when 'push_requests' then 70 else 50 end);
      execute format('alter table relevo.%I attach partition relevo.%I for values from (%L) to (%L)',
        parent, partition_name, month_start, (month_start + interval '1 month')::date);
      made := made + 1;
    end loop;
  end loop;
  return made;
end
$$;

-- Enqueues events, the app's commit decides; one row each, in order: its id, whether it is new, whether an old one says the same.
create or replace function relevo.enqueue_many(events jsonb) returns table (event_id bigint, created boolean, same_content boolean)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  event jsonb;
  kind relevo.event_types;
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
    kind := null;
    select t.* into kind from relevo.event_types t where t.event_type = event ->> 'type';
    at := coalesce(relevo.event_time(event, 'scheduled_at'), now());
    until := coalesce(relevo.event_time(event, 'deadline_at'), at + coalesce((event ->> 'ttl_s')::numeric::int, kind.ttl_s) * interval '1 second');
    created := false;
    loop
      select n.id, n.content_hash = hash into event_id, same_content from relevo.notification_events n
       where n.event_type = event ->> 'type' and n.event_key = event ->> 'key';
      exit when found;
      -- after the events: one that is retired between the two looks leaves its key with the same commit
      select k.event_id, k.content_hash = hash into event_id, same_content from relevo.event_keys k
       where k.event_type = event ->> 'type' and k.event_key = event ->> 'key';
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

-- One event and how far its deliveries are, without counting them; of a retired one what its key still tells.
create or replace function relevo.get_event(id_of_event bigint) returns jsonb
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object('id', e.id, 'type', e.event_type, 'key', e.event_key, 'state', e.state, 'title', e.title, 'body', e.body,
           'audience', e.audience, 'category', e.category, 'lane', e.lane, 'at_most_once', e.at_most_once,
           'created_at', e.created_at, 'scheduled_at', e.scheduled_at, 'deadline_at', e.deadline_at,
           'fanout_started_at', e.fanout_started_at, 'fanout_finished_at', e.fanout_finished_at,
           'ended_at', e.ended_at, 'end_reason', e.end_reason, 'targets_selected', e.targets_selected,
           'deliveries_created', e.deliveries_created, 'licitacion_id', e.licitacion_id,
           'deliveries', coalesce((select jsonb_object_agg(s.status, s.n) from (
              select p.status, sum(p.deliveries) as n from (
                select f.status, f.deliveries from relevo.event_progress f where f.event_id = e.id
                union all
                select d.status, d.deliveries from relevo.event_progress_deltas d where d.event_id = e.id) p
               group by p.status having sum(p.deliveries) <> 0) s), '{}'))
    from relevo.notification_events e where e.id = id_of_event
  union all
  select jsonb_build_object('id', k.event_id, 'type', k.event_type, 'key', k.event_key, 'state', k.state, 'title', '', 'body', '',
           'deliveries', jsonb '{}', 'archived', to_char(k.month, 'YYYY-MM'))
    from relevo.event_keys k where k.event_id = id_of_event
$$;

do $$
declare
  f regprocedure;
begin
  for f in select p.oid from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = 'relevo' loop
    execute format('revoke all on function %s from public', f);
  end loop;
end
$$;

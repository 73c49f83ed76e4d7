-- needs relevo 0.1.0
-- The runtime: who works, what ran, who holds a fleet-wide cycle, what operators switched.

create table relevo.workers (
  worker_id    text primary key check (length(worker_id) between 1 and 100),
  hostname     text not null,
  pid          integer not null,
  version      text not null,
  role         text not null check (role in ('run', 'tick', 'run-cycle')),
  cycles       text[] not null,
  wakeups      text not null default 'off' check (wakeups in ('off', 'listening', 'polling')),
  started_at   timestamptz not null,
  last_seen_at timestamptz not null,
  lease_ms     integer not null check (lease_ms > 0),
  stopping_at  timestamptz,
  stopped_at   timestamptz,
  lost_at      timestamptz,
  check (stopped_at is null or lost_at is null)
) with (fillfactor = 50);

comment on table relevo.workers is 'One row per process start that may run cycles; lost_at is set by whoever notices its silence.';

create sequence relevo.run_ids;

create table relevo.worker_runs (
  id            bigint primary key default nextval('relevo.run_ids'),
  cycle         text not null check (cycle ~ '^[a-z][a-z0-9-]{0,39}$'),
  source        text not null default '' check (length(source) <= 100),
  slot_at       timestamptz,
  trigger       text not null check (trigger in ('schedule', 'wake-up', 'tick', 'manual')),
  worker_id     text not null,
  started_at    timestamptz not null,
  finished_at   timestamptz,
  outcome       text not null check (outcome in ('running', 'ok', 'partial', 'failed', 'skipped', 'abandoned')),
  reason        text check (length(reason) between 1 and 300),
  counts        jsonb not null default '{}' check (jsonb_typeof(counts) = 'object'),
  error_message text check (length(error_message) between 1 and 500),
  worker_name               text   generated always as (cycle) stored,
  licitaciones_found        bigint generated always as (coalesce((counts ->> 'licitaciones_found')::bigint, 0)) stored,
  licitaciones_new          bigint generated always as (coalesce((counts ->> 'licitaciones_new')::bigint, 0)) stored,
  targets_selected          bigint generated always as (coalesce((counts ->> 'targets_selected')::bigint, 0)) stored,
  deliveries_created        bigint generated always as (coalesce((counts ->> 'deliveries_created')::bigint, 0)) stored,
  notifications_sent        bigint generated always as (coalesce((counts ->> 'notifications_sent')::bigint, 0)) stored,
  notifications_retryable   bigint generated always as (coalesce((counts ->> 'notifications_retryable')::bigint, 0)) stored,
  notifications_failed      bigint generated always as (coalesce((counts ->> 'notifications_failed')::bigint, 0)) stored,
  notifications_invalidated bigint generated always as (coalesce((counts ->> 'notifications_invalidated')::bigint, 0)) stored,
  receipts_processed        bigint generated always as (coalesce((counts ->> 'receipts_processed')::bigint, 0)) stored,
  archived_licitaciones     bigint generated always as (coalesce((counts ->> 'archived_licitaciones')::bigint, 0)) stored,
  archived_deliveries       bigint generated always as (coalesce((counts ->> 'archived_deliveries')::bigint, 0)) stored,
  check ((outcome = 'running') = (finished_at is null)),
  check (outcome <> 'skipped' or reason is not null),
  check (outcome not in ('failed', 'abandoned') or error_message is not null)
);

comment on table relevo.worker_runs is 'One row per run that did work, failed, filled a slot, or was skipped for a reason worth telling.';

-- A slot belongs to one run; a failed or abandoned one gives it back.
create unique index worker_runs_slot on relevo.worker_runs (cycle, source, slot_at)
  where slot_at is not null and outcome in ('running', 'ok', 'partial');
create index worker_runs_recent on relevo.worker_runs (started_at desc, id desc);
create index worker_runs_by_cycle on relevo.worker_runs (cycle, source, started_at desc, id desc);
create index worker_runs_open on relevo.worker_runs (worker_id) where outcome = 'running';

create table relevo.cycle_state (
  cycle           text not null,
  source          text not null default '',
  rounds          bigint not null default 0,
  idle_rounds     bigint not null default 0,
  last_round_at   timestamptz,
  wakeups_skipped bigint not null default 0,
  asleep          boolean not null default false,
  paused_at       timestamptz,
  paused_reason   text check (length(paused_reason) between 1 and 300),
  primary key (cycle, source),
  check ((paused_at is null) = (paused_reason is null))
) with (fillfactor = 50);

comment on table relevo.cycle_state is 'One line per cycle and source: rounds made, whether its workers sleep, and the operator''s pause switch.';

create table relevo.cycle_leases (
  cycle        text not null,
  source       text not null default '',
  holder       uuid not null,
  worker_id    text not null,
  term         bigint not null,
  lease_ms     integer not null check (lease_ms > 0),
  leased_until timestamptz not null,
  primary key (cycle, source)
) with (fillfactor = 50);

comment on table relevo.cycle_leases is 'Liveness of a fleet-wide singleton: who runs it and until when, by the database clock.';

create table relevo.cycle_terms (
  cycle  text not null,
  source text not null default '',
  term   bigint not null,
  primary key (cycle, source)
) with (fillfactor = 50);

comment on table relevo.cycle_terms is 'The fence of a singleton: every write transaction reads its term FOR SHARE first; takeover raises it.';

create table relevo.event_types (
  event_type      text primary key check (length(event_type) between 1 and 100),
  lease_ms        integer check (lease_ms between 100 and 3600000),
  max_attempts    smallint check (max_attempts between 1 and 100),
  retry_base_ms   integer check (retry_base_ms between 1 and 86400000),
  retry_max_ms    integer check (retry_max_ms between 1 and 86400000),
  retry_jitter_ms integer check (retry_jitter_ms between 0 and 3600000),
  updated_at      timestamptz not null default now(),
  check (retry_base_ms is null or retry_max_ms is null or retry_base_ms <= retry_max_ms)
);

comment on table relevo.event_types is 'What differs per event type; null means the setting. Read at every claim and settle, so a change needs no restart.';

-- Knocks on a cycle's door, but only while the fleet says that it sleeps: a NOTIFY in every commit would serialise them.
create function relevo.wake(cycle_name text) returns void
  language sql volatile
  set search_path = pg_catalog, pg_temp
as $$
  select pg_notify('relevo_wake', s.cycle)
    from relevo.cycle_state s
   where s.cycle = cycle_name and s.source = '' and s.asleep
$$;

revoke all on function relevo.wake(text) from public;

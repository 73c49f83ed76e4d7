-- Workers, the cycles they run, and whose database this is.

-- Numbers of runs.
create sequence relevo.run_ids;

-- Whether fan-out, and dispatch, are known to be awake, so that nobody has to call them: 1 if so. Each is a sequence, for every transaction reads its
-- value as it is now, whatever snapshot it has.
create sequence relevo.fanout_awake minvalue 0 maxvalue 1 start 0;
create sequence relevo.dispatch_awake minvalue 0 maxvalue 1 start 0;

create table relevo.workers (
  worker_id     text primary key check (length(worker_id) between 1 and 100),
  hostname      text not null,
  pid           integer not null,
  version       text not null,
  role          text not null check (role in ('run', 'tick', 'run-cycle')), -- which command it runs
  cycles        text[] not null, -- the cycles it runs
  wakeups       text not null default 'off' check (wakeups in ('off', 'listening', 'polling')), -- how it learns of wake-ups
  started_at    timestamptz not null,
  last_seen_at  timestamptz not null,
  lease_ms      integer not null check (lease_ms > 0), -- silent for longer than this it counts as lost
  stopping_at   timestamptz, -- when it was told to stop
  stopped_at    timestamptz,
  lost_at       timestamptz, -- when another worker found it silent
  composers     text[] not null default '{}',
  hung          jsonb not null default '[]' check (jsonb_typeof(hung) = 'array'),
  asleep        text[] not null default '{}',
  http          jsonb,
  rests_because text check (length(rests_because) between 1 and 500),
  unusable      text[] not null default '{}',
  unreachable   jsonb not null default '[]' check (jsonb_typeof(unreachable) = 'array'),
  next_beat_at  timestamptz, -- when it meant to be seen again
  clock_ahead_s float8,
  unwritable    jsonb not null default '[]' check (jsonb_typeof(unwritable) = 'array'),
  constraint workers_check check (stopped_at is null or lost_at is null)
) with (fillfactor = 50);
comment on table relevo.workers is 'One row per process start that may run cycles; lost_at is set by whoever notices its silence.';
comment on column relevo.workers.composers is 'The event types for which this process has a composer of its own.';
comment on column relevo.workers.hung is 'Calls of code of others, and runs, that were given up and have not come back: what, project, calls, since.';
comment on column relevo.workers.asleep is 'The cycles that sleep there and may be called.';
comment on column relevo.workers.http is 'Where it serves HTTP (address), or why it cannot (problem).';
comment on column relevo.workers.rests_because is 'In what the database differs, to this worker, from where it belongs; null while it is at work.';
comment on column relevo.workers.unusable is 'What of PUSH_PROJECTS_FILE it cannot use as it is now: where each stands, and why.';
comment on column relevo.workers.unreachable is
  'Push services that its process cannot reach: service (a provider, or one project), reason, failures, since, retry_at.';
comment on column relevo.workers.clock_ahead_s is 'By how many seconds the clock of its machine is ahead of the database''s; null if it has not said.';
comment on column relevo.workers.unwritable is 'Where its process cannot write, because a disk is full: place (a folder, or log), reason.';
create index workers_alive on relevo.workers (worker_id) where stopped_at is null and lost_at is null;
create index workers_ended on relevo.workers (role, greatest(stopped_at, lost_at)) where stopped_at is not null or lost_at is not null;

create table relevo.worker_runs (
  id                        bigint default nextval('relevo.run_ids') primary key,
  cycle                     text not null check (cycle ~ '^[a-z][a-z0-9-]{0,39}$'),
  source                    text not null default '' check (length(source) <= 100), -- of an ingest run; '' of the others
  slot_at                   timestamptz, -- the time of the schedule it ran for
  trigger                   text not null check (trigger in ('schedule', 'wake-up', 'tick', 'manual')),
  worker_id                 text not null,
  started_at                timestamptz not null,
  finished_at               timestamptz,
  outcome                   text not null check (outcome in ('running', 'ok', 'partial', 'failed', 'skipped', 'abandoned')),
  reason                    text check (length(reason) between 1 and 300), -- why it was skipped
  counts                    jsonb not null default '{}' check (jsonb_typeof(counts) = 'object'), -- what it did, by name
  error_message             text check (length(error_message) between 1 and 500),
  worker_name               text generated always as (cycle) stored, -- from here on: names and counts as reports read them
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
  constraint worker_runs_check check ((outcome = 'running') = (finished_at is null)),
  constraint worker_runs_check1 check (outcome <> 'skipped' or reason is not null),
  constraint worker_runs_check2 check ((outcome not in ('failed', 'abandoned')) or error_message is not null)
);
comment on table relevo.worker_runs is 'One row per run that did work, failed, filled a slot, or was skipped for a reason worth telling.';
create index worker_runs_by_cycle on relevo.worker_runs (cycle, source, started_at desc, id desc);
create index worker_runs_by_slot on relevo.worker_runs (cycle, source, slot_at) where slot_at is not null;
create index worker_runs_open on relevo.worker_runs (worker_id) where outcome = 'running';
create index worker_runs_recent on relevo.worker_runs (started_at desc, id desc);
create unique index worker_runs_slot on relevo.worker_runs (cycle, source, slot_at) where slot_at is not null
  and (outcome in ('running', 'ok', 'partial'));
create index worker_runs_troubled on relevo.worker_runs (started_at desc, id desc) where outcome in ('partial', 'failed', 'skipped', 'abandoned');

create table relevo.cycle_leases (
  cycle        text not null,
  source       text not null default '',
  holder       uuid not null, -- the one run that holds it
  worker_id    text not null,
  term         bigint not null, -- grows with each holder: the fence of what it writes
  lease_ms     integer not null check (lease_ms > 0),
  leased_until timestamptz not null, -- after that another worker may take it
  primary key (cycle, source)
) with (fillfactor = 50);
comment on table relevo.cycle_leases is 'Liveness of a fleet-wide singleton: who runs it and until when, by the database clock.';

create table relevo.cycle_state (
  cycle           text not null,
  source          text not null default '',
  rounds          bigint not null default 0,
  idle_rounds     bigint not null default 0, -- rounds that found nothing to do
  last_round_at   timestamptz,
  wakeups_skipped bigint not null default 0,
  asleep          boolean not null default false, -- whether a worker sleeps until a wake-up comes
  paused_at       timestamptz,
  paused_reason   text check (length(paused_reason) between 1 and 300),
  round_gap_s     float8 check (round_gap_s >= 0),
  last_ok_at      timestamptz,
  failures        integer not null default 0 check (failures >= 0),
  slots_skipped   bigint not null default 0,
  shared_at       timestamptz,
  totals          jsonb not null default '{}' check (jsonb_typeof(totals) = 'object'),
  every_ms        bigint check (every_ms > 0),
  cron            text check (length(cron) between 1 and 200),
  timezone        text check (length(timezone) between 1 and 64),
  off_reason      text check (length(off_reason) between 1 and 300),
  primary key (cycle, source),
  constraint cycle_state_check check ((paused_at is null) = (paused_reason is null))
) with (fillfactor = 50);
comment on table relevo.cycle_state is 'One line per cycle and source: rounds made, whether its workers sleep, and the operator''s pause switch.';
comment on column relevo.cycle_state.round_gap_s is 'How many seconds lie between two rounds, on a running average.';
comment on column relevo.cycle_state.failures is 'How many rounds in a row have failed.';
comment on column relevo.cycle_state.slots_skipped is 'Slots and ticks that were not run because another run had them, or for a reason told before.';
comment on column relevo.cycle_state.shared_at is 'When a replica last took its turn to do what one does for all of them.';
comment on column relevo.cycle_state.totals is 'The sums of what its runs counted.';
comment on column relevo.cycle_state.every_ms is 'How often it runs at the latest, as the worker or tick says that started last; null if it runs by cron, or before 0.4.';
comment on column relevo.cycle_state.cron is 'The cron expression by which it runs, likewise.';
comment on column relevo.cycle_state.timezone is 'The time zone of the cron expression.';
comment on column relevo.cycle_state.off_reason is 'Why it cannot run with the settings of that worker; null if it can.';

create trigger note_asleep after insert or update of asleep on relevo.cycle_state
  for each row when (new.asleep and new.source = '')
  execute function relevo.note_asleep();

create table relevo.cycle_terms (
  cycle  text not null,
  source text not null default '',
  term   bigint not null, -- the last one given out; kept when a lease goes
  primary key (cycle, source)
) with (fillfactor = 50);
comment on table relevo.cycle_terms is 'The fence of a singleton: every write transaction reads its term FOR SHARE first; takeover raises it.';

create table relevo.instance (
  one               boolean default true primary key check (one), -- there is one row
  system_identifier text,
  database_oid      bigint not null, -- differs in a copied database
  name              text check (length(name) between 1 and 100),
  recorded_at       timestamptz not null default now(),
  adopted_by        text check (length(adopted_by) between 1 and 200),
  former            jsonb check (jsonb_typeof(former) = 'object')
);
comment on table relevo.instance is 'Where this database belongs; where it is found elsewhere, nothing is sent until `relevo adopt`.';
comment on column relevo.instance.system_identifier is 'That of the server, which a failover keeps; null if nobody who recorded it may ask.';
comment on column relevo.instance.name is 'RELEVO_INSTANCE of those who work on it.';
comment on column relevo.instance.former is 'Where it belonged before it was adopted, and what was queued at that moment.';

create unlogged table relevo.turns (
  key bigint primary key -- the hash of a name
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
comment on table relevo.turns is
  'Where transactions that name one thing take turns, see relevo.take_turn: empty for everybody, and held by whoever inserted a key and has not ended.';

create unlogged table relevo.shared_locks (
  key bigint primary key -- the hash of a name
) with (fillfactor = 50);
comment on table relevo.shared_locks is
  'Names that transactions lock together or alone, see relevo.lock_shared and relevo.lock_alone: owners, and a fixed one. Only locks change a row.';

create table relevo.applied_functions (
  name       text primary key,
  checksum   text, -- of its file; null: it was dropped
  applied_at timestamptz not null default now(),
  applied_by text not null
);
comment on table relevo.applied_functions is
  'The functions of Relevo: of each the file that was applied last, and by which version. `relevo migrate` replaces those whose file changed.';

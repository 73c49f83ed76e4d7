-- needs relevo 0.1.0
-- Deliveries and the three things that keep them from being lost or doubled: claims, the journal, late tickets.

create sequence relevo.delivery_ids;

create table relevo.notification_deliveries (
  event_day             date not null,
  id                    bigint not null default nextval('relevo.delivery_ids'),
  notification_event_id bigint not null,
  installation_id       uuid not null,
  event_type            text not null check (length(event_type) between 1 and 100),
  provider              text not null default 'expo' check (length(provider) between 1 and 40),
  project               text not null default 'default' check (length(project) between 1 and 200),
  lane                  text not null default 'bulk' check (lane in ('urgent', 'bulk')),
  at_most_once          boolean not null default false,
  status                text not null default 'pending' check (status in (
                          'pending', 'retryable', 'sent', 'ok', 'unconfirmed', 'invalid', 'failed',
                          'expired', 'skipped', 'cancelled', 'unknown')),
  attempt_count         smallint not null default 0 check (attempt_count between 0 and 100),
  lapse_count           smallint not null default 0 check (lapse_count between 0 and 100),
  claim_token           uuid,
  next_attempt_at       timestamptz default now(),
  deadline_at           timestamptz,
  last_attempt_at       timestamptz,
  completed_at          timestamptz,
  created_at            timestamptz not null default now(),
  updated_at            timestamptz not null default now(),
  last_error_code       text check (length(last_error_code) between 1 and 100),
  last_error_message    text check (length(last_error_message) between 1 and 500),
  provider_ticket_id    text check (length(provider_ticket_id) between 1 and 200),
  provider_receipt_id   text check (length(provider_receipt_id) between 1 and 200),
  primary key (event_day, id),
  unique (event_day, notification_event_id, installation_id),
  constraint final_exactly_when_completed check (
    (status in ('ok', 'unconfirmed', 'invalid', 'failed', 'expired', 'skipped', 'cancelled', 'unknown')) = (completed_at is not null)),
  constraint open_has_a_next_attempt check (status not in ('pending', 'retryable') or next_attempt_at is not null),
  constraint final_has_no_next_attempt check (completed_at is null or next_attempt_at is null),
  constraint final_is_unclaimed check (completed_at is null or claim_token is null),
  constraint sent_has_a_ticket check (status not in ('sent', 'ok', 'unconfirmed') or provider_ticket_id is not null),
  constraint retryable_was_attempted check (status <> 'retryable' or attempt_count > 0)
) partition by range (event_day);

comment on table relevo.notification_deliveries is 'One push to one installation. Processing is not stored: a delivery is processing while it is claimed.';

-- claim_token stands in no index and no predicate, so that taking and handing back a claim stays a HOT update.
create index notification_deliveries_due on relevo.notification_deliveries (project, lane, next_attempt_at, id)
  where status in ('pending', 'retryable');

create table relevo.claims (
  token        uuid primary key,
  worker_id    text not null,
  cycle        text not null,
  claimed_at   timestamptz not null,
  lease_ms     integer not null check (lease_ms > 0),
  leased_until timestamptz not null,
  days         date[] not null,
  ids          bigint[] not null,
  check (cardinality(days) = cardinality(ids))
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

comment on table relevo.claims is 'One row per claimed batch; its token, made by the client, is the fence of every write that follows.';

create table relevo.push_requests (
  request_day   date not null,
  id            uuid not null,
  claim_token   uuid not null,
  worker_id     text not null,
  journalled_at timestamptz not null,
  answered_at   timestamptz,
  days          date[] not null,
  ids           bigint[] not null,
  primary key (request_day, id),
  check (cardinality(days) = cardinality(ids) and cardinality(ids) between 1 and 1000)
) partition by range (request_day);

comment on table relevo.push_requests is 'The journal: which deliveries went into which request, written before the POST; unanswered means ambiguous.';

create index push_requests_unanswered on relevo.push_requests (claim_token) where answered_at is null;

create table relevo.late_tickets (
  event_day   date not null,
  delivery_id bigint not null,
  ticket_id   text not null check (length(ticket_id) between 1 and 200),
  claim_token uuid not null,
  recorded_at timestamptz not null,
  primary key (event_day, delivery_id, ticket_id)
);

comment on table relevo.late_tickets is 'Answers that came after their claim was lost; they stop the next send of that delivery.';

-- Seed columns spelled out: a delivery with the claim that holds it.
create view relevo.deliveries as
select d.event_day, d.id, d.notification_event_id, d.installation_id, d.event_type, d.provider, d.project, d.lane, d.at_most_once,
       d.status, d.attempt_count, d.lapse_count, d.next_attempt_at, d.deadline_at, d.last_attempt_at, d.completed_at, d.created_at,
       d.updated_at, d.last_error_code, d.last_error_message, d.provider_ticket_id, d.provider_receipt_id, d.claim_token,
       c.claimed_at as locked_at, c.worker_id as locked_by, c.leased_until as locked_until, (c.token is not null) as processing
  from relevo.notification_deliveries d
  left join relevo.claims c on c.token = d.claim_token;

-- The delay before the next attempt: base doubled per attempt, capped, jittered, never below the provider's Retry-After.
create function relevo.retry_delay(attempts int, base_ms bigint, max_ms bigint, jitter_ms bigint, floor_ms bigint, chance float8)
  returns interval language sql immutable
  return greatest(least(base_ms * 2::float8 ^ least(greatest(attempts, 1) - 1, 40), max_ms) + jitter_ms * chance, floor_ms)
         * interval '1 millisecond';

-- Makes the monthly partitions of deliveries and journal from first_month on, says how many were new; safe to call at once.
create function relevo.ensure_partitions(first_month date, months int) returns int
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
      perform pg_advisory_xact_lock(hashtextextended('relevo.ensure_partitions', 0));
      -- made by another while we waited? Asked of the table, for to_regclass remembers its first answer
      continue when exists (select from pg_class c where c.relnamespace = 'relevo'::regnamespace and c.relname = partition_name);
      execute format('create table relevo.%I (like relevo.%I including defaults including constraints) with '
        '(fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, '
        'autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0, '
        'autovacuum_analyze_scale_factor = 0.02)', partition_name, parent);
      execute format('alter table relevo.%I attach partition relevo.%I for values from (%L) to (%L)',
        parent, partition_name, month_start, (month_start + interval '1 month')::date);
      made := made + 1;
    end loop;
  end loop;
  return made;
end
$$;

revoke all on function relevo.retry_delay(int, bigint, bigint, bigint, bigint, float8) from public;
revoke all on function relevo.ensure_partitions(date, int) from public;

-- One month back as well: a clock that disagrees by a day at a month's turn must not find the door closed.
select relevo.ensure_partitions((now() at time zone 'UTC' - interval '1 month')::date, 4);

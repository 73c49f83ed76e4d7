-- One row for each event and phone, by month, and what went wrong with it.

-- Numbers of deliveries.
create sequence relevo.delivery_ids;

create table relevo.notification_deliveries (
  event_day             date not null, -- the partition: the day of the fan-out
  id                    bigint not null default nextval('relevo.delivery_ids'),
  notification_event_id bigint not null,
  installation_id       uuid not null,
  event_type            text not null,
  provider              text not null default 'expo',
  project               text not null default 'default',
  lane                  text not null default 'bulk', -- or urgent
  at_most_once          boolean not null default false,
  status                text not null default 'pending', -- retryable, sent; ok, unconfirmed, invalid, failed, expired, skipped, cancelled, unknown
  attempt_count         smallint not null default 0, -- pushes that were tried
  lapse_count           smallint not null default 0, -- claims that lapsed before an answer
  deadline_at           timestamptz,
  last_attempt_at       timestamptz,
  completed_at          timestamptz, -- set exactly in a final status
  created_at            timestamptz not null default now(),
  updated_at            timestamptz not null default now(),
  last_error_code       text,
  last_error_message    text,
  provider_ticket_id    text, -- the push service took it
  provider_receipt_id   text, -- the push service says what became of it
  token_version         integer,
  opened_at             timestamptz,
  opened_action         text,
  inbox_id              bigint,
  primary key (event_day, id),
  constraint delivery_is_possible check (relevo.is_possible_delivery(status, attempt_count, lapse_count, completed_at, provider_ticket_id)),
  constraint notification_deliveries_event_day_notification_event_id_ins_key unique (event_day, notification_event_id, installation_id)
) partition by range (event_day);
comment on table relevo.notification_deliveries is
  'One push to one installation. Processing is not stored: a delivery is processing while it is claimed.';
comment on column relevo.notification_deliveries.token_version is
  'The version of the token it was sent to: a token is disabled only if it is still this one.';
comment on column relevo.notification_deliveries.opened_at is 'When it was opened, as its phone reported; only where the event''s type asks for that.';
comment on column relevo.notification_deliveries.opened_action is 'By which of its buttons it was opened; null: by itself.';
comment on column relevo.notification_deliveries.inbox_id is
  'The inbox of the owner it was made for; null: its phone had no owner, or it is from before 0.4.0.';
create index notification_deliveries_phone on relevo.notification_deliveries (installation_id, id);

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

create table relevo.failed_attempts (
  event_day     date not null,
  delivery_id   bigint not null,
  n             smallint not null check (n between 1 and 20), -- 1 is the first
  at            timestamptz not null,
  attempt       smallint not null check (attempt between 0 and 100),
  found_by      text not null check (found_by in ('dispatch', 'receipt', 'reaper', 'redrive')),
  became        text not null check (became in ('pending', 'retryable', 'invalid', 'failed', 'expired', 'unknown')),
  error_code    text check (length(error_code) between 1 and 100),
  error_message text check (length(error_message) between 1 and 500),
  request_id    uuid,
  primary key (event_day, delivery_id, n)
);
comment on table relevo.failed_attempts is
  'What went wrong with a delivery, attempt by attempt, the first twenty: rows are added by whatever writes the delivery, and go with it.';
comment on column relevo.failed_attempts.attempt is 'The delivery''s count of attempts then; a redrive begins anew.';
comment on column relevo.failed_attempts.found_by is 'Who found it: a redrive notes a death that nobody had.';
comment on column relevo.failed_attempts.became is 'What the delivery became by it.';
comment on column relevo.failed_attempts.request_id is 'The request it was in, if that is known.';

create table relevo.dead_letters (
  event_day   date not null,
  delivery_id bigint not null,
  event_id    bigint not null,
  project     text not null,
  error_code  text,
  died_at     timestamptz not null,
  primary key (event_day, delivery_id)
);
comment on table relevo.dead_letters is 'The deliveries that failed for good, as long as their month is not archived: what a redrive opens again.';
create index dead_letters_code on relevo.dead_letters (error_code, delivery_id);
create index dead_letters_event_order on relevo.dead_letters (event_id, delivery_id);
create index dead_letters_order on relevo.dead_letters (delivery_id);

create trigger note_news after insert on relevo.dead_letters referencing new table as come
  for each statement execute function relevo.note_dead_letters();

create view relevo.deliveries as
select d.event_day, d.id, d.notification_event_id, d.installation_id, d.event_type, d.provider, d.project, d.lane, d.at_most_once, d.status,
       d.attempt_count, d.lapse_count, coalesce(q.due_at, c.due_at) as next_attempt_at,
       e.deadline_at, d.last_attempt_at, d.completed_at, d.created_at, d.updated_at, d.last_error_code, d.last_error_message,
       d.provider_ticket_id, d.provider_receipt_id, coalesce(c.token, r.claim_token) as claim_token,
       coalesce(c.claimed_at, rc.claimed_at) as locked_at, coalesce(c.worker_id, rc.worker_id) as locked_by,
       coalesce(c.leased_until, rc.leased_until) as locked_until, coalesce(c.token, rc.token) is not null as processing,
       d.token_version, r.look_at as next_receipt_at, d.opened_at, d.opened_action
  from relevo.notification_deliveries d
  left join relevo.notification_events e on e.id = d.notification_event_id
  left join lateral (select q.due_at from relevo.due_chunks q
                      where d.status in ('pending', 'retryable') and q.event_id = d.notification_event_id and d.id = any (q.ids) limit 1) q on true
  left join lateral (select c.token, c.claimed_at, c.worker_id, c.leased_until, c.due_at from relevo.claims c
                      where d.status in ('pending', 'retryable') and d.id = any (c.ids) limit 1) c on true
  left join lateral (select r.look_at, r.claim_token from relevo.awaited_receipts r
                      where d.status = 'sent' and r.project = d.project and d.id = any (r.ids) limit 1) r on true
  left join relevo.claims rc on rc.token = r.claim_token;
comment on view relevo.deliveries is
  'Deliveries with what a person asks of one: when it is due, who has it and until when, when its receipt is asked for.';

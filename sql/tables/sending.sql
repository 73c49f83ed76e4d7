-- The journal of requests to push services.

create table relevo.push_requests (
  request_day   date not null,
  id            uuid not null,
  claim_token   uuid not null,
  worker_id     text not null,
  journalled_at timestamptz not null,
  answered_at   timestamptz, -- null: ambiguous while its claim lives
  days          date[] not null,
  ids           bigint[] not null,
  project       text,
  outcome       text, -- answered, or how it failed
  primary key (request_day, id),
  constraint push_requests_check check (cardinality(days) = cardinality(ids) and cardinality(ids) between 1 and 1000)
) partition by range (request_day);
comment on table relevo.push_requests is
  'The journal: which deliveries went into which request, written before the POST; unanswered means ambiguous.';
create index push_requests_journalled on relevo.push_requests (journalled_at, id);
create index push_requests_unanswered on relevo.push_requests (claim_token) where answered_at is null;

create table relevo.late_tickets (
  event_day   date not null,
  delivery_id bigint not null,
  ticket_id   text not null check (length(ticket_id) between 1 and 200),
  claim_token uuid not null, -- of the claim that was lost before the answer came
  recorded_at timestamptz not null,
  primary key (event_day, delivery_id, ticket_id)
);
comment on table relevo.late_tickets is 'Answers that came after their claim was lost; they stop the next send of that delivery.';

create table relevo.apns_tokens (
  team_id   text not null check (length(team_id) between 1 and 200),
  key_id    text not null check (length(key_id) between 1 and 200),
  issued_at timestamptz not null,
  primary key (team_id, key_id)
);
comment on table relevo.apns_tokens is 'When the provider token of each APNs key was issued: every process signs the same token from it.';

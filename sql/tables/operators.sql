-- Tokens, sessions and used signatures of HTTP, the audit log, and the things that are left alone after errors.

create table relevo.audit_log (
  id            bigint generated always as identity primary key,
  at            timestamptz not null default now(),
  actor         text not null check (length(actor) between 1 and 200), -- who
  face          text not null check (face in ('cli', 'http', 'python')), -- through what
  action        text not null check (length(action) between 1 and 100),
  target        jsonb not null default '{}' check (jsonb_typeof(target) = 'object'), -- on what
  outcome       text not null default 'begun' check (outcome in ('begun', 'ok', 'failed')),
  result        jsonb not null default '{}' check (jsonb_typeof(result) = 'object'), -- what came of it
  error_message text check (length(error_message) between 1 and 500),
  finished_at   timestamptz,
  constraint audit_log_check check ((outcome = 'begun') = (finished_at is null))
);
comment on table relevo.audit_log is
  'What operators did, by any face: who, when, what, with what result. Begun and never finished: the process died in its midst.';
create index audit_log_pauses on relevo.audit_log ((target ->> 'cycle'), at) where action in ('pause', 'resume');

create table relevo.api_tokens (
  id           text primary key check (id ~ '^[0-9a-f]{12}$'),
  name         text not null check (length(name) between 1 and 100),
  role         text not null check (role in ('app', 'observer', 'viewer', 'operator')),
  project      text check (length(project) between 1 and 200),
  secret_hash  bytea not null check (octet_length(secret_hash) = 32), -- SHA-256 of the token
  created_at   timestamptz not null default now(),
  expires_at   timestamptz,
  revoked_at   timestamptz,
  last_used_at timestamptz,
  constraint api_tokens_check check (expires_at > created_at),
  issuer       text check (length(issuer) between 1 and 500),
  subject      text check (length(subject) between 1 and 255),
  constraint people_have_a_provider check ((issuer is null) = (subject is null))
) with (fillfactor = 50);
comment on table relevo.api_tokens is 'Who may call over HTTP: the SHA-256 of each token, never the token itself.';
comment on column relevo.api_tokens.project is 'The only project whose events and phones it may reach; null for all.';
comment on column relevo.api_tokens.last_used_at is 'Written at most once a minute.';
comment on column relevo.api_tokens.issuer is 'Of a person: the provider of identities with which the person signs in. Nobody knows the token itself.';
comment on column relevo.api_tokens.subject is 'Of a person: what the provider calls the person, for ever.';
create unique index api_tokens_person on relevo.api_tokens (issuer, subject) where subject is not null;

create table relevo.http_sessions (
  secret_hash  bytea primary key check (octet_length(secret_hash) = 32),
  token_id     text not null references relevo.api_tokens(id) on delete cascade,
  created_at   timestamptz not null default now(),
  expires_at   timestamptz not null,
  last_used_at timestamptz not null default now(),
  proved_at    timestamptz not null default now(),
  idle_minutes integer not null default 480 check (idle_minutes > 0),
  address      text check (length(address) between 1 and 100),
  constraint http_sessions_check check (expires_at > created_at)
);
comment on table relevo.http_sessions is
  'Who is logged in to the dashboard: the SHA-256 of each session''s cookie. A session is as good as its token, and ends with it.';
comment on column relevo.http_sessions.last_used_at is 'Written at most once a minute; a page that renews itself is no use.';
comment on column relevo.http_sessions.proved_at is 'When somebody last proved to hold the token: at the login, or before a grave action.';
comment on column relevo.http_sessions.idle_minutes is 'After how many minutes without use the session ends.';
comment on column relevo.http_sessions.address is 'From where the login came.';
create index http_sessions_expiry on relevo.http_sessions (expires_at);
create index http_sessions_token on relevo.http_sessions (token_id);

create table relevo.used_signatures (
  digest     bytea primary key check (octet_length(digest) = 32),
  expires_at timestamptz not null
);
comment on table relevo.used_signatures is
  'Signatures of the app''s server that a phone has used, and logins that came to their end; only good ones are here, and cleanup deletes what ended a day ago.';
create index used_signatures_expires_at on relevo.used_signatures (expires_at);

create table relevo.troubles (
  kind     text not null check (kind in ('lane', 'claim', 'delivery', 'receipts', 'subscription', 'part')),
  name     text not null check (length(name) between 1 and 300), -- which lane, claim, delivery …
  error    text not null check (length(error) between 1 and 500),
  failures integer not null default 1 check (failures > 0),
  first_at timestamptz not null default now(),
  last_at  timestamptz not null default now(),
  retry_at timestamptz not null, -- until then it is left alone
  primary key (kind, name)
);
comment on table relevo.troubles is
  'Errors that were met on one lane, claim, delivery, subscription or part of a cycle, which is left alone until it is tried again.';

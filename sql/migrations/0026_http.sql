-- needs relevo 0.1.0
-- Lets callers in over HTTP: tokens with roles, a record of what operators did, and where each worker serves.

create table relevo.api_tokens (
  id text primary key check (id ~ '^[0-9a-f]{12}$'),
  name text not null check (length(name) between 1 and 100),
  role text not null check (role in ('app', 'viewer', 'operator')),
  project text check (length(project) between 1 and 200),
  secret_hash bytea not null check (octet_length(secret_hash) = 32),
  created_at timestamptz not null default now(),
  expires_at timestamptz check (expires_at > created_at),
  revoked_at timestamptz,
  last_used_at timestamptz
) with (fillfactor = 50);

comment on table relevo.api_tokens is 'Who may call over HTTP: the SHA-256 of each token, never the token itself.';
comment on column relevo.api_tokens.project is 'The only project whose events and phones it may reach; null for all.';
comment on column relevo.api_tokens.last_used_at is 'Written at most once a minute.';

create table relevo.audit_log (
  id bigint generated always as identity primary key,
  at timestamptz not null default now(),
  actor text not null check (length(actor) between 1 and 200),
  face text not null check (face in ('cli', 'http', 'python')),
  action text not null check (length(action) between 1 and 100),
  target jsonb not null default '{}' check (jsonb_typeof(target) = 'object'),
  outcome text not null default 'begun' check (outcome in ('begun', 'ok', 'failed')),
  result jsonb not null default '{}' check (jsonb_typeof(result) = 'object'),
  error_message text check (length(error_message) between 1 and 500),
  finished_at timestamptz,
  check ((outcome = 'begun') = (finished_at is null))
);

comment on table relevo.audit_log is 'What operators did, by any face: who, when, what, with what result. Begun and never finished: the process died in its midst.';

alter table relevo.workers add column http jsonb;

comment on column relevo.workers.http is 'Where it serves HTTP (address), or why it cannot (problem).';

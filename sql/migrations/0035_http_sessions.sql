-- needs relevo 0.1.0
-- Lets people log in to the dashboard with a token, for some hours, and out again.

create table relevo.http_sessions (
  secret_hash bytea primary key check (octet_length(secret_hash) = 32),
  token_id text not null references relevo.api_tokens (id) on delete cascade,
  created_at timestamptz not null default now(),
  expires_at timestamptz not null check (expires_at > created_at)
);

comment on table relevo.http_sessions is 'Who is logged in to the dashboard: the SHA-256 of each session''s cookie. A session is as good as its token, and ends with it.';

create index http_sessions_expiry on relevo.http_sessions (expires_at);
create index http_sessions_token on relevo.http_sessions (token_id);

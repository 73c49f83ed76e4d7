-- needs relevo 0.3.0
-- Lets sessions end without use, asks for their token again, and tells from where they were begun.

alter table relevo.http_sessions
  add column last_used_at timestamptz not null default now(),
  add column proved_at timestamptz not null default now(),
  add column idle_minutes integer not null default 480 check (idle_minutes > 0),
  add column address text check (length(address) between 1 and 100);
comment on column relevo.http_sessions.last_used_at is 'Written at most once a minute; a page that renews itself is no use.';
comment on column relevo.http_sessions.proved_at is 'When somebody last proved to hold the token: at the login, or before a grave action.';
comment on column relevo.http_sessions.idle_minutes is 'After how many minutes without use the session ends.';
comment on column relevo.http_sessions.address is 'From where the login came.';

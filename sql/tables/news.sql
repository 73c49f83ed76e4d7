-- News for the app: what happened to pushes and phones.

create table relevo.news (
  subscription    text not null references relevo.news_subscriptions(name) on delete cascade,
  position        bigint not null,
  at              timestamptz not null,
  kind            text not null,
  project         text,
  event_id        bigint,
  delivery_id     bigint,
  installation_id uuid,
  data            jsonb not null,
  primary key (subscription, "position")
);
comment on table relevo.news is 'The news of each subscription, numbered without gaps.';

create table relevo.news_subscriptions (
  name       text primary key check (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,49}$'),
  id         uuid not null default gen_random_uuid() unique,
  kinds      text[] not null check (cardinality(kinds) > 0 -- what it is for
    and kinds <@ array['event.finished', 'delivery.failed', 'token.disabled', 'installation.unregistered', 'delivery.opened']),
  project    text check (length(project) between 1 and 200),
  webhook    text check (length(webhook) between 1 and 200),
  paused_at  timestamptz,
  head       bigint not null default 0 check (head >= 0), -- the last position written
  tail       bigint not null default 0, -- up to this position news were deleted
  dropped    bigint not null default 0 check (dropped >= 0),
  dropped_at timestamptz,
  created_at timestamptz not null default now(),
  constraint news_subscriptions_check check (tail between 0 and head),
  constraint news_subscriptions_check1 check (project is null or ('event.finished' <> all (kinds)))
);
comment on table relevo.news_subscriptions is 'Who asked for which news. Numbers up to head were given, those up to tail are gone.';
comment on column relevo.news_subscriptions.webhook is 'The name in WEBHOOKS_FILE of the address they are sent to; null: they are read.';
comment on column relevo.news_subscriptions.dropped is 'How many were dropped unread: the backlog was full, or they were too old.';

-- Apart from the subscription: an app that moves it in a long transaction must not keep the reaper waiting.
create table relevo.news_cursors (
  subscription text primary key references relevo.news_subscriptions(name) on delete cascade,
  position     bigint not null default 0 check ("position" >= 0) -- acknowledged up to here
);
comment on table relevo.news_cursors is 'Up to which number a subscription''s news were read and acknowledged, or sent on their way.';

create table relevo.news_events (
  id       bigint generated always as identity primary key,
  event_id bigint not null -- may have finished; the reaper looks
);
comment on table relevo.news_events is 'Events that changed and may have finished; the reaper looks, if somebody wants to know.';
create index news_events_event on relevo.news_events (event_id);

create table relevo.news_inbox (
  id              bigint generated always as identity primary key,
  at              timestamptz not null,
  kind            text not null,
  project         text,
  event_id        bigint,
  delivery_id     bigint,
  installation_id uuid,
  data            jsonb not null
);
comment on table relevo.news_inbox is 'News as they were decided, not yet given to the subscriptions. They hold no token and no person.';

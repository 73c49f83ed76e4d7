-- Digests: what preferences do not want at once, told together when its time comes.

-- Numbers of windows: a closing numbers what was fanned out since the last one.
create sequence relevo.digest_numbers;

create table relevo.digest_events (
  event_id bigint primary key,
  number   bigint -- the window it fell into; null until the next closing
);
comment on table relevo.digest_events is 'Events that were fanned out while some phones have digests, until every digest has had its look at them.';
create index digest_events_number on relevo.digest_events (number);

create table relevo.digest_slots (
  project      text not null,
  delivery     text not null,
  zone         text not null,
  closes_at    timestamptz not null,
  after_number bigint not null, -- windows up to this one are told
  upto_number  bigint, -- while it closes: the last window that it tells
  upto_seq     bigint, -- and the last phone
  phone_cursor bigint not null default 0, -- up to this phone it is told
  event_id     bigint, -- the event it is told by, once somebody gets it
  primary key (project, delivery, zone),
  constraint upto_while_it_closes check ((upto_number is null) = (upto_seq is null) and (upto_number is not null or event_id is null))
);
comment on table relevo.digest_slots is 'One line for each time at which digests close: a project, what preferences say, and a time zone; not one for each phone.';
create index digest_slots_due on relevo.digest_slots (closes_at);

create table relevo.digest_followers (
  project         text not null,
  delivery        text not null,
  zone            text not null,
  seq             bigint not null, -- the phone's
  installation_id uuid not null,
  primary key (project, delivery, zone, seq)
);
comment on table relevo.digest_followers is 'The phones of a slot: those that may receive, with an enabled preference that says so.';
create index digest_followers_phone on relevo.digest_followers (installation_id);

create table relevo.digest_changes (
  project         text not null,
  delivery        text not null,
  zone            text not null,
  seq             bigint not null,
  installation_id uuid not null,
  from_number     bigint not null, -- up to here the slot was told before
  at_number       bigint not null, -- the last window that there was
  changed_at      timestamptz not null default now(),
  primary key (project, delivery, zone, seq)
);
comment on table relevo.digest_changes is
  'Phones whose digests changed lately, by the slots they had or have: of these it is looked up what they were told, so that nothing is told twice or never.';
create index digest_changes_by_time on relevo.digest_changes (changed_at);
create index digest_changes_phone on relevo.digest_changes (seq);

create table relevo.digest_extras (
  project         text not null,
  delivery        text not null,
  zone            text not null,
  seq             bigint not null, -- the phone's
  event_id        bigint not null,
  installation_id uuid not null,
  primary key (project, delivery, zone, seq, event_id)
);
comment on table relevo.digest_extras is 'Events that were above a cap, for the next digest of a phone: deleted by the closing that tells them.';
create index digest_extras_event on relevo.digest_extras (event_id);
create index digest_extras_phone on relevo.digest_extras (installation_id);

create table relevo.digests (
  event_id  bigint primary key,
  project   text not null,
  delivery  text not null,
  zone      text not null,
  closed_at timestamptz not null, -- the time of the slot
  made_at   timestamptz not null default now(),
  phones    bigint not null default 0,
  items     bigint not null default 0 -- of all phones together
);
comment on table relevo.digests is 'The digests of the last weeks, each by the event it was told by.';
create index digests_by_time on relevo.digests (made_at);

create table relevo.digest_contents (
  event_id bigint not null, -- the digest
  seq      bigint not null, -- the phone
  total    integer not null check (total > 0),
  offsets  integer[] not null, -- of the events: how far before the digest's their ids are; the best first, the first thousand of them
  primary key (event_id, seq)
);
alter table relevo.digest_contents alter column offsets set storage plain; -- to compress such numbers takes milliseconds
comment on table relevo.digest_contents is 'What a digest tells a phone: how many events, and which; the first three are named in the push.';

create table relevo.digest_moves (
  project text primary key check (length(project) between 1 and 200),
  place   uuid -- up to this phone it is done
);
comment on table relevo.digest_moves is 'Projects whose time zone changed, while the digests of their phones are brought to other slots, some at a time.';

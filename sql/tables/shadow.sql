-- Shadow mode: everything but the request to the push service, beside another system that sends.

create table relevo.shadow_modes (
  project text primary key check (length(project) <= 200), -- the app's own name of it; empty: all projects
  since   timestamptz not null,
  until   timestamptz, -- null: it lasts
  set_by  text not null check (length(set_by) between 1 and 200),
  constraint shadow_modes_check check (until >= since)
);
comment on table relevo.shadow_modes is 'The projects in shadow mode: Relevo does everything but send. A row stays after the end of the mode.';
comment on column relevo.shadow_modes.until is 'When it ended: a delivery that fell due before is never sent, one that falls due later is.';

create table relevo.shadow_sends (
  id              bigint generated always as identity primary key,
  sent_at         timestamptz not null,
  installation_id uuid, -- null if the token that was named is no phone's
  owner           text check (length(owner) between 1 and 200),
  project         text check (length(project) between 1 and 200),
  event_type      text check (length(event_type) between 1 and 200),
  event_key       text check (length(event_key) between 1 and 300),
  title           text check (length(title) between 1 and 1000),
  send_id         text check (length(send_id) between 1 and 200),
  received_at     timestamptz not null default now(),
  constraint shadow_sends_check check (num_nonnulls(event_key, title) > 0)
);
comment on table relevo.shadow_sends is 'What another system sent, as it or its file says: `relevo shadow report` compares it with what shadow mode kept from being sent.';
comment on column relevo.shadow_sends.send_id is 'Its own number in the other system: the same one again is the same push.';
create unique index shadow_sends_once on relevo.shadow_sends (coalesce(project, ''), send_id) where send_id is not null;
create index shadow_sends_time on relevo.shadow_sends (sent_at);
create index shadow_sends_received on relevo.shadow_sends (received_at);
create index shadow_sends_phone on relevo.shadow_sends (installation_id);
create index shadow_sends_owner on relevo.shadow_sends (owner);

create type relevo.shadow_side as (
  side    "char",
  id      bigint,
  subject text,
  what    text,
  at      timestamptz
);
comment on type relevo.shadow_side is 'A push of one side of the comparison: of theirs (t) or ours (o), to whom, what, and when.';

-- Deliveries that are due, and those a worker has claimed.

create table relevo.due_chunks (
  id            bigint generated always as identity primary key,
  project       text not null,
  lane          text not null, -- urgent or bulk
  due_at        timestamptz not null,
  event_day     date not null,
  event_id      bigint not null,
  event_type    text not null,
  created_at    timestamptz not null,
  attempt_count smallint not null,
  lapse_count   smallint not null, -- claims of it that lapsed
  had_error     boolean not null,
  ids           bigint[] not null, -- its deliveries
  installations uuid[] not null, -- their phones, in the same order
  inboxes       bigint[],
  events        bigint[],
  constraint chunk_is_possible check (relevo.is_possible_chunk(ids, installations, inboxes, events, event_id))
) with (toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
comment on table relevo.due_chunks is
  'What waits to be sent: up to one request''s worth of deliveries of one type that fall due together. Written and deleted, never changed.';
comment on column relevo.due_chunks.created_at is 'When its deliveries were made: what was handled in the app since then is not pushed any more.';
comment on column relevo.due_chunks.had_error is 'Whether their last try met an error: a probe takes others first.';
comment on column relevo.due_chunks.inboxes is
  'The inboxes its deliveries were made for, in the same order: a phone that is another owner''s by now is not sent to. Null: nothing to compare.';
comment on column relevo.due_chunks.event_id is 'The event of all its deliveries; 0: they are of several events.';
comment on column relevo.due_chunks.events is
  'The events of its deliveries, in the same order, if they are of several: small personal events that were fanned out together. Such a chunk keeps its
id until its last delivery is claimed, and its events know it (notification_events.queued_in).';
alter table relevo.due_chunks alter column ids set storage main;
alter table relevo.due_chunks alter column installations set storage main;
alter table relevo.due_chunks alter column inboxes set storage main;
alter table relevo.due_chunks alter column events set storage main;
create index due_chunks_event on relevo.due_chunks (event_id, id);
create index due_chunks_next on relevo.due_chunks (project, lane, due_at, id);

create table relevo.claims (
  token        uuid primary key,
  worker_id    text not null,
  cycle        text not null,
  claimed_at   timestamptz not null,
  lease_ms     integer not null check (lease_ms > 0), -- by how much a renewal extends it
  leased_until timestamptz not null, -- after that the reaper hands its deliveries back
  days         date[] not null, -- of ids, in the same order
  ids          bigint[] not null,
  events       bigint[] not null default '{}',
  due_at       timestamptz,
  in_shadow    boolean not null default false,
  constraint claims_check check (cardinality(days) = cardinality(ids))
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
comment on table relevo.claims is 'One row per claimed batch; its token, made by the client, is the fence of every write that follows.';
comment on column relevo.claims.ids is 'The deliveries it holds: one belongs to a claim exactly while it stands here. What was settled is taken out.';
comment on column relevo.claims.events is 'The events of its deliveries, each once, as they were claimed.';
comment on column relevo.claims.due_at is 'When the first of its deliveries fell due: what is handed back is due since then.';
comment on column relevo.claims.in_shadow is
  'Whether its deliveries were claimed in shadow mode: nothing of it is ever sent, whatever happens to the mode meanwhile.';
alter table relevo.claims alter column ids set storage external;
create index claims_by_time on relevo.claims (claimed_at);

-- Sent deliveries whose receipts are awaited.

create table relevo.awaited_receipts (
  id            bigint generated always as identity primary key,
  project       text not null,
  look_at       timestamptz not null, -- when its receipts are due
  sent_at       timestamptz not null,
  claim_token   uuid, -- who asks for them now
  days          date[] not null,
  ids           bigint[] not null check (cardinality(ids) between 1 and 100),
  installations uuid[] not null,
  tickets       text[] not null,
  versions      integer[] not null,
  attempts      smallint[] not null,
  constraint awaited_receipts_check check (cardinality(days) = cardinality(ids) and cardinality(installations) = cardinality(ids)
    and cardinality(tickets) = cardinality(ids) and cardinality(versions) = cardinality(ids) and cardinality(attempts) = cardinality(ids))
) with (toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
comment on table relevo.awaited_receipts is
  'Sent deliveries whose receipts are still to be asked for, up to a request''s worth that were sent together.';
create index awaited_receipts_claim on relevo.awaited_receipts (claim_token) where claim_token is not null;
create index awaited_receipts_next on relevo.awaited_receipts (project, look_at, id);

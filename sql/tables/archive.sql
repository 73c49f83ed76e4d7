-- Months on their way to the archive.

-- A role that owns only the schema relevo may not make another one; cleanup says then who has to.
do $$
begin
  if to_regnamespace('relevo_archive') is null then
    create schema relevo_archive;
  end if;
exception when insufficient_privilege then
  raise notice 'the schema relevo_archive is missing';
end
$$;

create table relevo.archive_exports (
  entity           text not null check (entity in ('licitaciones', 'notification_events', 'notification_deliveries', 'push_requests')),
  month            date not null check (extract(day from month) = 1),
  state            text not null check (state in ('moving', 'sealed', 'retired', 'exported', 'verified', 'dropped')),
  relation         text not null, -- the table of the month
  relation_oid     oid,
  export_id        uuid not null default gen_random_uuid(), -- names the files
  part_rows        integer not null check (part_rows > 0), -- rows in each file
  parts            integer,
  rows             bigint,
  bytes            bigint,
  manifest_sha256  text check (length(manifest_sha256) = 64),
  sealed_at        timestamptz,
  retired_at       timestamptz,
  exported_at      timestamptz,
  verified_at      timestamptz,
  drop_eligible_at timestamptz, -- when the grace after verifying is over
  dropped_at       timestamptz,
  mismatches       integer not null default 0, -- how often a file read back differed
  last_error       text check (length(last_error) between 1 and 500),
  updated_at       timestamptz not null default now(),
  kept_blocks      bigint not null default 0,
  kept_file        oid,
  registered_at    timestamptz,
  register_error   text check (length(register_error) between 1 and 500),
  primary key (entity, month),
  constraint archive_exports_check check ((state = 'moving') = (sealed_at is null)),
  constraint archive_exports_check1 check ((state in ('retired', 'exported', 'verified', 'dropped')) = (retired_at is not null)),
  constraint archive_exports_check3 check ((state in ('exported', 'verified', 'dropped')) = (exported_at is not null)),
  constraint archive_exports_check4 check ((state in ('verified', 'dropped')) = (verified_at is not null)),
  constraint archive_exports_check5 check ((verified_at is null) = (drop_eligible_at is null)),
  constraint archive_exports_check6 check ((state = 'dropped') = (dropped_at is not null)),
  constraint archive_exports_check7 check (exported_at is null or num_nulls(parts, rows, bytes, manifest_sha256) = 0),
  constraint retired_months_are_counted check (retired_at is null or rows is not null)
);
comment on table relevo.archive_exports is
  'One row per entity and month that left the hot tables: moving or sealed, retired, exported, verified, dropped.';
comment on column relevo.archive_exports.relation_oid is 'No longer written: a load from a dump changes it.';
comment on column relevo.archive_exports.kept_blocks is 'How many of its blocks were looked through for items that stay in inboxes for longer.';
comment on column relevo.archive_exports.kept_file is 'The file of those blocks: in another one, after a load from a dump or VACUUM FULL, rows lie elsewhere.';
comment on column relevo.archive_exports.registered_at is 'When the Iceberg catalog named its files, or there were none in the store any more; null also without a catalog.';
comment on column relevo.archive_exports.register_error is 'Why the catalog did not take it at the last attempt.';

create table relevo.archive_parts (
  entity         text not null,
  month          date not null,
  part           integer not null check (part > 0),
  first_key      text[] not null,
  last_key       text[] not null,
  rows           bigint not null check (rows > 0),
  bytes          bigint not null check (bytes > 0),
  file_sha256    text not null check (length(file_sha256) = 64), -- of the bytes
  content_sha256 text not null check (length(content_sha256) = 64), -- of the rows, compared when it is read back
  uploaded_at    timestamptz not null default now(),
  verified_at    timestamptz,
  primary key (entity, month, part),
  constraint archive_parts_entity_month_fkey foreign key (entity, month) references relevo.archive_exports(entity, month)
);
comment on table relevo.archive_parts is 'One Parquet file of a month: a fixed range of its sorted rows, the hash of the file and of the rows in it.';

create table relevo.archive_stores (
  name          text primary key check (length(name) between 1 and 2000),
  archive_id    uuid not null, -- the store says the same: else it is another
  first_used_at timestamptz not null default now()
);
comment on table relevo.archive_stores is 'The stores that months were exported to, each with the id of the marker that lies in it.';

-- name: find_schema
-- Returns whether the schema is there, maybe made by an administrator for a role that may not make one.
select to_regnamespace('relevo') is not null;

-- name: create_schema
-- Makes the schema, once.
create schema relevo;

-- name: create_ledger
-- Makes the ledger of applied migrations, once; needs is the oldest relevo that works on the schema after it.
create table relevo.schema_migrations (
  version    integer primary key,
  name       text not null,
  checksum   text not null,
  needs      text not null,
  applied_at timestamptz not null default now(),
  applied_by text not null
);

-- name: find_ledger
-- Returns whether this database has ever been migrated.
select to_regclass('relevo.schema_migrations') is not null;

-- name: lock_ledger
-- Lets one process migrate at a time, while everybody reads the ledger; a transaction lock, so it also holds through a transaction pooler.
lock table relevo.schema_migrations in share row exclusive mode;

-- name: find_holder
-- Returns the process id of the session that migrates.
select l.pid from pg_locks l
 where l.locktype = 'relation' and l.relation = 'relevo.schema_migrations'::regclass and l.mode = 'ShareRowExclusiveLock' and l.granted
   and l.database = (select d.oid from pg_database d where d.datname = current_database())
 limit 1;

-- name: list_applied
-- Lists the applied migrations in order.
select version, name, checksum, needs, applied_by from relevo.schema_migrations order by version;

-- name: record_applied
-- Writes a migration into the ledger, in the transaction that ran it.
insert into relevo.schema_migrations (version, name, checksum, needs, applied_by)
values (%(version)s, %(name)s, %(checksum)s, %(needs)s, %(applied_by)s);

-- name: bound_migration
-- Bounds how long a migration waits for a lock and how long it works.
select set_config('lock_timeout', %(lock_ms)s::text, true), set_config('statement_timeout', %(statement_ms)s::text, true);

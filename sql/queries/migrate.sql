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

-- name: pause_migration
-- Waits for a moment before a migration is tried again.
select pg_sleep(%(seconds)s);

-- name: find_blocker
-- Finds the session that has held a lock on one of our tables for longest, with its program and for how long its transaction has been open.
select a.pid, coalesce(nullif(a.application_name, ''), a.backend_type), coalesce(extract(epoch from clock_timestamp() - a.xact_start), 0)::float8
  from pg_locks l
  join pg_stat_activity a on a.pid = l.pid
  join pg_class c on c.oid = l.relation and c.relnamespace = to_regnamespace('relevo')
 where l.granted and l.pid <> pg_backend_pid() and l.database = (select d.oid from pg_database d where d.datname = current_database())
 order by a.xact_start
 limit 1;

-- name: list_unvalidated
-- Lists the statements that validate the constraints which were added without a look at the rows, of tables that this role owns.
select format('alter table %%s validate constraint %%I', c.conrelid::regclass, c.conname)
  from pg_constraint c join pg_class t on t.oid = c.conrelid
 where c.connamespace = to_regnamespace('relevo') and not c.convalidated and c.conparentid = 0 and pg_has_role(t.relowner, 'usage')
 order by 1;

-- name: find_owner
-- Returns the owner of the schema, and the role of this session.
select n.nspowner::regrole::text, current_user::text from pg_namespace n where n.nspname = 'relevo';

-- Questions of `relevo doctor` to the server around the tables.

-- name: read_server
-- Returns the server's version and time, whether autovacuum runs and commits wait for the disk, and what this role may see and do.
select current_setting('server_version_num')::int as version, clock_timestamp() as now, current_setting('autovacuum')::boolean as autovacuum,
       (select s.reset_val <> 'off' from pg_settings s where s.name = 'synchronous_commit') as flushes,
       pg_has_role(current_user, 'pg_read_all_stats', 'usage') as sees_activity,
       exists (select from pg_extension e where e.extname = 'plpgsql') as has_plpgsql;

-- name: list_denied
-- Lists the tables that this role may not read and write as a worker has to; to the audit log a worker only adds entries.
select c.relname as name
  from pg_class c
 where c.relnamespace = to_regnamespace('relevo') and c.relkind in ('r', 'p') and not c.relispartition
   and c.relname not in ('schema_migrations', 'applied_functions')
   and not (has_schema_privilege('relevo', 'usage') and has_table_privilege(c.oid, 'select') and has_any_column_privilege(c.oid, 'insert')
            and (c.relname = 'audit_log' or has_table_privilege(c.oid, 'insert') and has_table_privilege(c.oid, 'update') and has_table_privilege(c.oid, 'delete')))
 order by c.relname;

-- name: find_archive_owner
-- Returns who owns the schema relevo, if the schema for retired months is missing.
select n.nspowner::regrole::text as owner from pg_namespace n where n.nspname = 'relevo' and to_regnamespace('relevo_archive') is null;

-- name: may_forge_audit
-- Returns whether this role may change or delete entries of the audit log although it does not own them.
select not pg_has_role(c.relowner, 'usage') and (has_any_column_privilege(c.oid, 'update') or has_table_privilege(c.oid, 'delete')) as may
  from pg_class c
 where c.oid = 'relevo.audit_log'::regclass;

-- name: is_sharing_undecided
-- Returns whether equal owner names of several projects are one person although nobody said so, and somebody holds a token of one of them.
select exists (select from relevo.owner_sharing s where s.shared and s.said_at is null)
   and exists (select from relevo.api_tokens t
                where t.project is not null and t.revoked_at is null and (t.expires_at > now()) is not false
                  and (exists (select from relevo.device_installations i where i.project <> t.project and not i.for_news)
                       or exists (select from relevo.api_tokens o where o.project <> t.project and o.revoked_at is null))) as undecided;

-- name: count_unregistered
-- Counts the verified months that the Iceberg catalog lacks, and returns the oldest and what the catalog said last.
select count(*)::int as months, min(x.month) as oldest, (array_agg(x.register_error order by x.updated_at desc) filter (where x.register_error is not null))[1] as error
  from relevo.archive_exports x
 where x.verified_at is not null and x.registered_at is null;

-- name: list_bloated
-- Lists the tables that hold more dead rows than vacuum should leave.
select s.relname as name, s.n_dead_tup as dead, s.n_live_tup as live, greatest(s.last_vacuum, s.last_autovacuum) as vacuumed_at
  from pg_stat_user_tables s
 where s.schemaname = 'relevo' and s.n_dead_tup > %(least)s and s.n_dead_tup > 2 * s.n_live_tup
 order by s.n_dead_tup desc
 limit 10;

-- name: list_old_snapshots
-- Lists transactions that have kept dead rows from being vacuumed for long.
select a.pid, coalesce(nullif(a.application_name, ''), 'a nameless program') as program, a.state,
       extract(epoch from now() - a.xact_start)::float8 as seconds
  from pg_stat_activity a
 where a.backend_xmin is not null and a.pid <> pg_backend_pid() and coalesce(a.datname, current_database()) = current_database()
   and a.backend_type <> 'autovacuum worker' and a.xact_start < now() - %(seconds)s * interval '1 second'
 order by a.xact_start
 limit 10;

-- name: list_old_prepared
-- Lists prepared transactions that nobody ended.
select p.gid, extract(epoch from now() - p.prepared)::float8 as seconds
  from pg_prepared_xacts p
 where p.database = current_database() and p.prepared < now() - %(seconds)s * interval '1 second'
 order by p.prepared
 limit 10;

-- name: list_stale_slots
-- Lists replication slots that nobody reads, and that keep dead rows or much of the log.
select s.slot_name, coalesce(pg_wal_lsn_diff(case when pg_is_in_recovery() then null else pg_current_wal_lsn() end, s.restart_lsn), 0)::float8 as bytes,
       s.xmin is not null or s.catalog_xmin is not null as keeps_rows
  from pg_replication_slots s
 where not s.active
   and (s.xmin is not null or s.catalog_xmin is not null
        or pg_wal_lsn_diff(case when pg_is_in_recovery() then null else pg_current_wal_lsn() end, s.restart_lsn) > %(bytes)s)
 order by s.slot_name
 limit 10;

-- name: list_paused
-- Lists what operators switched off, for how long it has been, and why.
select s.cycle || case when s.source = '' then '' else ':' || s.source end as name, s.paused_reason as reason,
       extract(epoch from now() - s.paused_at)::float8 as seconds
  from relevo.cycle_state s
 where s.paused_at is not null
 order by 1;

-- name: list_webhooks
-- Lists the subscriptions to news that go to a webhook.
select s.name, s.webhook from relevo.news_subscriptions s where s.webhook is not null order by s.name;

-- name: read_quiet_hours
-- Returns whether there are quiet hours and Android phones that make a sound for want of a quiet channel. Returns also how many phones, up to
-- 1,000, have quiet hours without a zone of the phone, the hours, the owner or the project.
select not %(channel)s and exists (select from relevo.quiet_profiles p where not isempty(p.windows))
       and exists (select from relevo.device_installations i where i.platform = 'android' and i.active) as rings,
       (select count(*)::int
          from (select from relevo.device_installations i
                 where i.active and (i.quiet is not null or i.owner_quiet is not null or i.project = any (array(select d.project from relevo.quiet_defaults d)))
                   and relevo.said_zone(i.timezone, i.quiet, i.owner_quiet, i.project) is null
                   and not isempty((select q.windows from relevo.quiet_of(i.quiet, i.owner_quiet, i.project, i.timezone) q))
                 limit 1000) x) as without_zone;

-- name: ask_server
-- Returns by what this server and its database are known, whether it is a standby, and how old its newest change is, in seconds; while a
-- standby has replayed nothing, how late the next beat of a worker is.
select relevo.system_identifier() as system_identifier, d.oid::bigint as database_oid, i.recorded_at, pg_is_in_recovery() as is_standby,
       extract(epoch from clock_timestamp()
                          - coalesce(case when pg_is_in_recovery() then pg_last_xact_replay_timestamp() end,
                                     (select max(w.last_seen_at + w.lease_ms / 4 * interval '1 millisecond') from relevo.workers w)))::float8 as age_s
  from pg_database d
  left join relevo.instance i on true
 where d.datname = current_database();

-- name: ask_server_by_beats
-- Returns the same for servers whose replication does not report when a change was made, such as Aurora: the age is the delay of the next heartbeat
-- of a worker.
select relevo.system_identifier() as system_identifier, d.oid::bigint as database_oid, i.recorded_at, pg_is_in_recovery() as is_standby,
       extract(epoch from clock_timestamp()
                          - (select max(w.last_seen_at + w.lease_ms / 4 * interval '1 millisecond') from relevo.workers w))::float8 as age_s
  from pg_database d
  left join relevo.instance i on true
 where d.datname = current_database();

-- name: ask_position
-- Returns up to where this server has written its log: all that was acknowledged lies before it.
select pg_current_wal_insert_lsn()::text;

-- name: ask_behind
-- Returns how many bytes of the log up to a position this standby has not replayed yet.
select pg_wal_lsn_diff(%(position)s::pg_lsn, pg_last_wal_replay_lsn())::float8;

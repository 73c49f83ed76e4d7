-- name: ask_age
-- Tells how old the newest change is that this server has, in seconds. Where replication does not say when a change was made, as on
-- Aurora, or this is no standby, it is how late the next beat of a worker is: a former standby that is on its own looks old.
select extract(epoch from clock_timestamp() - coalesce(case when pg_is_in_recovery() then pg_last_xact_replay_timestamp() end,
                                                       (select max(w.last_seen_at + w.lease_ms / 4 * interval '1 millisecond') from relevo.workers w)));

-- name: ask_age
-- Tells how old the newest change is that this server has, in seconds: nothing on a primary. Where replication does not say when
-- a change was made, as on Aurora, the newest beat of a worker tells it.
select case when pg_is_in_recovery()
            then extract(epoch from clock_timestamp() - coalesce(pg_last_xact_replay_timestamp(), (select max(w.last_seen_at) from relevo.workers w)))
            else 0 end;

-- name: read_instance
-- Returns where this database belongs, if that was recorded, where it is, and a worker that has been at work since it belongs there.
select i.one is not null as recorded, i.system_identifier, i.database_oid, i.name, i.recorded_at,
       relevo.system_identifier() as system_identifier_here, d.oid::bigint as database_oid_here,
       w.worker_id as at_work, extract(epoch from now() - w.last_seen_at)::float8 as seen_s
  from pg_database d
  left join relevo.instance i on true
  left join lateral (select w.worker_id, w.last_seen_at
                       from relevo.workers w
                      where w.rests_because is null and w.stopping_at is null and w.last_seen_at > i.recorded_at and relevo.is_alive(w)
                      order by w.last_seen_at desc, w.worker_id limit 1) w on true
 where d.datname = current_database();

-- name: record_instance
-- Records at the first start where this database belongs; later starts change nothing.
insert into relevo.instance (system_identifier, database_oid, name)
select relevo.system_identifier(), d.oid::bigint, %(name)s::text from pg_database d where d.datname = current_database()
on conflict do nothing;

-- name: count_queued
-- Counts, up to a bound, what would begin to move once this database is adopted.
select (select least(coalesce(sum(cardinality(q.ids)), 0), %(most)s)::int
          from (select q.ids from relevo.due_chunks q limit %(most)s) q) as deliveries_queued,
       (select count(*)::int from (select from relevo.notification_events e
                                    where e.state in ('waiting', 'fanning') limit %(most)s) x) as events_waiting,
       (select least(coalesce(sum(cardinality(r.ids)), 0), %(most)s)::int
          from (select r.ids from relevo.awaited_receipts r limit %(most)s) r) as receipts_awaited;

-- name: adopt_instance
-- Lets this database belong where it is, unless somebody else changed that since it was shown.
update relevo.instance i
   set system_identifier = relevo.system_identifier(), database_oid = d.oid::bigint, name = %(name)s, recorded_at = now(),
       adopted_by = %(adopted_by)s,
       former = jsonb_build_object('system_identifier', i.system_identifier, 'database_oid', i.database_oid, 'name', i.name,
                                   'recorded_at', i.recorded_at, 'queued', %(queued)s::jsonb)
  from pg_database d
 where d.datname = current_database() and i.recorded_at = %(recorded_at)s
returning i.recorded_at;

-- name: list_due_lanes
-- Finds the projects and lanes that have something due, by skipping along the due index, and when the next thing falls due.
with recursive lane as (
  (select d.project, d.lane from relevo.notification_deliveries d
    where d.status in ('pending', 'retryable') order by d.project, d.lane limit 1)
  union all
  select n.project, n.lane
    from lane l
    cross join lateral (select d.project, d.lane from relevo.notification_deliveries d
                         where d.status in ('pending', 'retryable') and (d.project, d.lane) > (l.project, l.lane)
                         order by d.project, d.lane limit 1) n
)
select l.project, l.lane, extract(epoch from f.next_attempt_at - coalesce(%(now)s::timestamptz, now()))::float8 as due_in_s
  from lane l
  cross join lateral (select d.next_attempt_at from relevo.notification_deliveries d
                       where d.status in ('pending', 'retryable') and d.project = l.project and d.lane = l.lane and d.claim_token is null
                       order by d.next_attempt_at, d.id limit 1) f
 order by f.next_attempt_at > coalesce(%(now)s::timestamptz, now()), l.lane desc, f.next_attempt_at
 limit %(limit)s;

-- name: list_due_receipts
-- Finds the projects that have receipts to ask for, by skipping along their index, and when the next one falls due.
with recursive named as (
  (select d.project from relevo.notification_deliveries d where d.status = 'sent' order by d.project limit 1)
  union all
  select n.project
    from named p
    cross join lateral (select d.project from relevo.notification_deliveries d
                         where d.status = 'sent' and d.project > p.project order by d.project limit 1) n
)
select p.project,
       extract(epoch from greatest(f.due_at, '2000-01-01Z') - coalesce(%(now)s::timestamptz, now()))::float8 as due_in_s
  from named p
  cross join lateral (select coalesce(d.next_receipt_at, '-infinity') as due_at from relevo.notification_deliveries d
                       where d.status = 'sent' and d.project = p.project and d.claim_token is null
                       order by coalesce(d.next_receipt_at, '-infinity'), d.id limit 1) f
 order by f.due_at
 limit %(limit)s;

-- name: count_due
-- Counts what is due in one lane, but no further than asked for.
select count(*)::int
  from (select from relevo.notification_deliveries d
         where d.status in ('pending', 'retryable') and d.project = %(project)s and d.lane = %(lane)s
           and d.next_attempt_at <= coalesce(%(now)s::timestamptz, now()) and d.claim_token is null
         order by d.next_attempt_at, d.id
         limit %(limit)s) x;

-- name: add_project
-- Makes a project's row; one that is there stays as it is.
insert into relevo.projects (project, filled_at, urgent_tokens, bulk_tokens)
values (%(project)s, coalesce(%(now)s::timestamptz, now()), %(chunk)s, %(chunk)s)
on conflict (project) do nothing;

-- name: lock_project
-- Locks a project's row, so that the fleet decides about it one after the other, and tells the time.
select p.project, p.urgent_tokens, p.bulk_tokens, p.filled_at, p.rate_share, p.rest_until, p.breaker, p.breaker_reason, p.breaker_by,
       p.breaker_since, p.probe_at, p.trips, p.failures, p.pruning_stopped_at, p.runaway_since,
       coalesce(%(now)s::timestamptz, clock_timestamp()) as now
  from relevo.projects p where p.project = %(project)s
   for no key update;

-- name: save_project
-- Writes what was decided about a locked project.
update relevo.projects
   set urgent_tokens = %(urgent_tokens)s, bulk_tokens = %(bulk_tokens)s, filled_at = %(filled_at)s, rate_share = %(rate_share)s,
       rest_until = %(rest_until)s, breaker = %(breaker)s, breaker_reason = %(breaker_reason)s, breaker_by = %(breaker_by)s,
       breaker_since = %(breaker_since)s, probe_at = %(probe_at)s, trips = %(trips)s, failures = %(failures)s,
       pruning_stopped_at = %(pruning_stopped_at)s, runaway_since = %(runaway_since)s
 where project = %(project)s;

-- name: lease_connections
-- Takes this worker's fair share of a project's connections, as far as others leave any; nothing if they leave none.
insert into relevo.push_connections as c (project, worker_id, connections, leased_until)
select %(project)s, %(worker_id)s, s.share, coalesce(%(now)s::timestamptz, now()) + %(lease_ms)s * interval '1 millisecond'
  from (select least(
            greatest(1, %(most)s / greatest(1, (
              select count(*)::int from relevo.workers w
               where 'dispatch' = any (w.cycles) and w.stopped_at is null and w.lost_at is null
                 and w.last_seen_at + w.lease_ms * interval '1 millisecond' > now()))),
            %(most)s - coalesce((
              select sum(o.connections)::int from relevo.push_connections o
               where o.project = %(project)s and o.worker_id <> %(worker_id)s
                 and o.leased_until > coalesce(%(now)s::timestamptz, now())), 0)) as share) s
 where s.share >= 1
on conflict (project, worker_id) do update set connections = excluded.connections, leased_until = excluded.leased_until
returning c.connections;

-- name: drop_connections
-- Gives this worker's connections back.
delete from relevo.push_connections where worker_id = %(worker_id)s and (%(project)s::text is null or project = %(project)s);

-- name: tell_incident
-- Writes down what happened to a project's sending.
insert into relevo.project_incidents (project, at, what, detail)
values (%(project)s, coalesce(%(now)s::timestamptz, now()), %(what)s, %(detail)s);

-- name: sum_tallies
-- Sums up how a project's pushes fared within a window, or since an operator released it.
select coalesce(sum(t.sent), 0)::bigint, coalesce(sum(t.answers), 0)::bigint, coalesce(sum(t.unregistered), 0)::bigint
  from relevo.push_tallies t
 where t.project = %(project)s and t.at > coalesce(%(now)s::timestamptz, now()) - %(window_ms)s * interval '1 millisecond'
   and t.at > coalesce((select p.judged_since from relevo.projects p where p.project = %(project)s), '-infinity');

-- name: count_installations
-- Counts a project's installations at most every few minutes; in between the last count is told.
update relevo.projects p
   set installations = (select count(*) from relevo.device_installations i where i.project = %(project)s),
       counted_at = coalesce(%(now)s::timestamptz, now())
 where p.project = %(project)s
   and (p.counted_at is null or p.counted_at < coalesce(%(now)s::timestamptz, now()) - interval '5 minutes')
returning p.installations;

-- name: read_installations
-- Tells the last count of a project's installations.
select coalesce(p.installations, 0) from relevo.projects p where p.project = %(project)s;

-- name: move_tokens
-- Writes down which project each token belongs to, as the push service told; installations are locked in their order.
update relevo.device_installations i
   set project = x.project, updated_at = coalesce(%(now)s::timestamptz, now())
  from (select n.installation_id, m.project
          from unnest(%(tokens)s::text[], %(projects)s::text[]) as m(token, project)
          join relevo.device_installations n on n.token = m.token and n.project <> m.project
         order by n.installation_id
           for no key update of n) x
 where i.installation_id = x.installation_id;

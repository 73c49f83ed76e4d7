-- name: keep_partitions_ahead
-- Makes the partitions of the last, this and the coming months where they are missing, and says how many were made.
select relevo.ensure_partitions((relevo.now(%(now)s) at time zone 'UTC' - interval '1 month')::date, %(months)s);

-- name: prune_runs
-- Deletes a batch of finished runs older than their retention.
with old as materialized (
  select r.id from relevo.worker_runs r
   where r.started_at < relevo.now(%(now)s) - %(retention_days)s * interval '1 day' and r.outcome <> 'running'
   order by r.started_at
   limit %(limit)s
)
delete from relevo.worker_runs r using old where r.id = old.id;

-- name: prune_workers
-- Deletes a batch of workers that ended longer ago than the runs' retention, or a day ago if they were commands that run once.
with old as materialized (
  select w.worker_id
    from (values ('run', %(retention_days)s::int), ('tick', 1), ('run-cycle', 1)) as k(role, days)
    cross join lateral (select w.worker_id from relevo.workers w
                         where w.role = k.role and (w.stopped_at is not null or w.lost_at is not null)
                           and greatest(w.stopped_at, w.lost_at) < relevo.now(%(now)s) - k.days * interval '1 day'
                           and not exists (select from relevo.worker_runs r where r.worker_id = w.worker_id and r.outcome = 'running')
                         order by greatest(w.stopped_at, w.lost_at)
                         limit %(limit)s) w
   limit %(limit)s
)
delete from relevo.workers w using old where w.worker_id = old.worker_id;

-- name: prune_late_tickets
-- Deletes a batch of late tickets that can stop no send any more: their delivery is gone or final, and cannot be redriven.
with old as materialized (
  select l.event_day, l.delivery_id, l.ticket_id
    from relevo.late_tickets l
    left join relevo.notification_deliveries d on d.event_day = l.event_day and d.id = l.delivery_id
   where l.recorded_at < relevo.now(%(now)s) - interval '2 days' and (d.id is null or d.completed_at is not null and d.status <> 'failed')
   limit %(limit)s
)
delete from relevo.late_tickets l using old
 where l.event_day = old.event_day and l.delivery_id = old.delivery_id and l.ticket_id = old.ticket_id;

-- name: prune_cap_uses
-- Forgets a batch of what counted against caps in an hour, day or week that is over everywhere.
with old as materialized (
  select u.cap, u.subject, u.bucket from relevo.cap_uses u
   where u.bucket < relevo.now(%(now)s) at time zone 'UTC' - interval '9 days'
   order by u.bucket
   limit %(limit)s
     for update skip locked
)
delete from relevo.cap_uses u using old where u.cap = old.cap and u.subject = old.subject and u.bucket = old.bucket;

-- name: prune_profiles
-- Deletes a batch of quiet hours that nobody has any more; it counts them as one row.
select relevo.prune_profiles(%(limit)s);

-- name: prune_batches
-- Deletes a batch of what was told together, five weeks after it was.
delete from relevo.batches b
 where b.id in (select o.id from relevo.batches o where o.closed_at < relevo.now(%(now)s) - interval '35 days' order by o.closed_at limit %(limit)s);

-- name: prune_failed_attempts
-- Deletes a batch of what went wrong with deliveries whose month is sealed, or left the hot tables.
with old as materialized (
  select f.event_day, f.delivery_id, f.n
    from relevo.archive_exports x
    cross join lateral (select f.event_day, f.delivery_id, f.n from relevo.failed_attempts f
                         where f.event_day >= x.month and f.event_day < (x.month + interval '1 month')::date
                         limit %(limit)s
                           for update skip locked) f -- whoever deletes the event of one is not waited for
   where x.entity = 'notification_deliveries'
   limit %(limit)s
)
delete from relevo.failed_attempts f using old
 where f.event_day = old.event_day and f.delivery_id = old.delivery_id and f.n = old.n;

-- name: prune_dead_phones
-- Deletes a batch of phones, with what they asked for, whose tokens were disabled or that were unregistered longer ago than their retention;
-- deliveries know only their ids. One that registers again meanwhile is passed by.
with old as materialized (
  select i.installation_id from relevo.device_installations i
   where i.dead_since < relevo.now(%(now)s) - %(dead_phones_days)s * interval '1 day'
   order by i.dead_since
   limit %(limit)s
     for update skip locked
)
delete from relevo.device_installations i using old where i.installation_id = old.installation_id;

-- name: prune_moved_tokens
-- Deletes a batch of notes of which installation lost its token, once what was on its way then is over.
with old as materialized (
  select m.token_key, m.installation_id from relevo.moved_tokens m
   where m.moved_at < relevo.now(%(now)s) - interval '7 days'
   order by m.moved_at
   limit %(limit)s
)
delete from relevo.moved_tokens m using old where m.token_key = old.token_key and m.installation_id = old.installation_id;

-- name: prune_incidents
-- Deletes a batch of what happened to projects longer ago than the runs' retention.
with old as materialized (
  select i.id from relevo.project_incidents i
   where i.at < relevo.now(%(now)s) - %(retention_days)s * interval '1 day'
   order by i.id
   limit %(limit)s
)
delete from relevo.project_incidents i using old where i.id = old.id;

-- name: prune_push_minutes
-- Deletes a batch of what projects sent, minute by minute, more than eight days ago.
with old as materialized (
  select m.project, m.minute from relevo.push_minutes m
   where m.minute < relevo.now(%(now)s) - interval '8 days'
   order by m.minute
   limit %(limit)s
   for update skip locked
)
delete from relevo.push_minutes m using old where m.project = old.project and m.minute = old.minute;

-- name: prune_rejects
-- Deletes a batch of rejects that were mended, or last heard of, longer ago than the runs' retention.
with old as materialized (
  select r.id from relevo.ingest_rejects r
   where coalesce(r.resolved_at, r.updated_at) < relevo.now(%(now)s) - %(retention_days)s * interval '1 day'
   order by r.id
   limit %(limit)s
   for update skip locked
)
delete from relevo.ingest_rejects r using old where r.id = old.id;

-- name: prune_projects
-- Deletes a batch of projects without installations and open deliveries, unused for the runs' retention; never one that a breaker or brake holds.
with old as materialized (
  select p.project from relevo.projects p
   where p.filled_at < relevo.now(%(now)s) - %(retention_days)s * interval '1 day'
     and p.breaker = 'closed' and p.pruning_stopped_at is null
     and coalesce(p.rest_until, '-infinity') < relevo.now(%(now)s)
     and not exists (select from relevo.device_installations i where i.project = p.project)
     and not exists (select from relevo.due_chunks q where q.project = p.project)
     and not exists (select from relevo.awaited_receipts w where w.project = p.project)
   order by p.filled_at
   limit %(limit)s
   for update of p skip locked
)
delete from relevo.projects p using old where p.project = old.project;

-- name: prune_connections
-- Deletes the leases of connections that dead workers left long ago.
delete from relevo.push_connections where leased_until < relevo.now(%(now)s) - interval '1 day';

-- name: prune_audit
-- Deletes a batch of entries of the audit log that are older than their retention.
select relevo.prune_audit(%(audit_days)s::int, %(limit)s::int);

-- name: prune_signatures
-- Deletes a batch of used signatures that ended a day ago, whatever a replica's clock says.
with old as materialized (
  select u.digest from relevo.used_signatures u
   where u.expires_at < relevo.now(%(now)s) - interval '1 day'
   order by u.expires_at
   limit %(limit)s
)
delete from relevo.used_signatures u using old where u.digest = old.digest;

-- name: prune_kept_inbox_items
-- Deletes a batch of inbox items that were kept for longer than their month, once their days are over.
with old as materialized (
  select k.inbox_id, k.event_id from relevo.kept_inbox_items k
   where k.kept_until < relevo.now(%(now)s)
   order by k.kept_until
   limit %(limit)s
     for update skip locked
)
delete from relevo.kept_inbox_items k using old where k.inbox_id = old.inbox_id and k.event_id = old.event_id;

-- name: prune_former_phones
-- Deletes a batch of phones that left an inbox so long ago that nothing in it came by them; one row for each.
select from generate_series(1, relevo.prune_former_phones(%(limit)s, %(now)s));

-- name: prune_inbox_marks
-- Deletes a batch of marks of what is in no inbox any more, whatever its type.
with old as materialized (
  select m.inbox_id, m.event_id from relevo.inbox_marks m
   where m.at < relevo.now(%(now)s) - (greatest(90, (select max(t.inbox_days) from relevo.event_types t where t.inbox_days is not null)) + 1) * interval '1 day'
   order by m.at
   limit %(limit)s
     for update skip locked
)
delete from relevo.inbox_marks m using old where m.inbox_id = old.inbox_id and m.event_id = old.event_id;

-- name: prune_silent_pushes
-- Deletes a batch of notes of what went without a sound, five weeks after it did.
delete from relevo.silent_pushes s
 where (s.event_id, s.delivery_id) in (select o.event_id, o.delivery_id from relevo.silent_pushes o
                                        where o.at < relevo.now(%(now)s) - interval '35 days' order by o.at limit %(limit)s);

-- name: prune_digest_contents
-- Deletes a batch of what digests told phones, once their events are archived.
delete from relevo.digest_contents c
 where (c.event_id, c.seq) in (select o.event_id, o.seq
                                 from relevo.digests g
                                 cross join lateral (select o.event_id, o.seq from relevo.digest_contents o where o.event_id = g.event_id limit %(limit)s) o
                                where g.made_at < relevo.now(%(now)s) - interval '35 days'
                                  and not exists (select from relevo.notification_events e where e.id = g.event_id)
                                limit %(limit)s);

-- name: prune_digests
-- Deletes a batch of digests of which nothing is kept any more.
delete from relevo.digests g
 where g.event_id in (select o.event_id from relevo.digests o
                       where o.made_at < relevo.now(%(now)s) - interval '35 days'
                         and not exists (select from relevo.notification_events e where e.id = o.event_id)
                         and not exists (select from relevo.digest_contents c where c.event_id = o.event_id)
                       order by o.made_at limit %(limit)s);

-- name: prune_digest_slots
-- Deletes a batch of slots for which nothing is gathered; it counts them as one row.
select relevo.prune_digest_slots(%(limit)s);

-- name: prune_sends
-- Forgets a batch of what another system reported beside shadow mode, five weeks after.
with old as materialized (
  select s.id from relevo.shadow_sends s
   where s.received_at < relevo.now(%(now)s) - interval '35 days'
   order by s.received_at
   limit %(limit)s
     for update skip locked
)
delete from relevo.shadow_sends s using old where s.id = old.id;

-- name: pick_expired_claim
-- Locks the claim that expired first, passing by those another reaper is taking back. None that is held was made before `since`.
select c.token, c.worker_id, c.cycle, cardinality(c.ids) as deliveries,
       relevo.now(%(now)s) - c.leased_until as overdue,
       relevo.now(%(now)s) - c.claimed_at as held_for
  from relevo.claims c
 where c.leased_until <= relevo.now(%(now)s) and c.claimed_at >= coalesce(%(since)s::timestamptz, '-infinity') and c.token <> all (%(given_up)s::uuid[])
 order by c.leased_until
 limit 1
   for update skip locked;

-- name: find_first_claim
-- Returns a bound for the next looks for expired claims: none that is held was made before it.
select least(now() - interval '2 seconds', (select c.claimed_at from relevo.claims c order by c.claimed_at limit 1));

-- name: tell_reaped
-- Notifies the former holder that its claim is gone, and wakes the cycle that can go on with it.
select pg_notify('relevo_lost', %(token)s::text), pg_notify('relevo_wake', %(cycle)s);

-- name: take_turn
-- Takes the turn to do what one replica does for the fleet; finds nothing if another took it within the interval, and locks nothing then.
insert into relevo.cycle_state as s (cycle, source, shared_at)
select 'reaper', '', t.now
  from (select relevo.now(%(now)s) as now, %(every_ms)s * interval '1 millisecond' as every) t
 where not exists (select from relevo.cycle_state f
                    where f.cycle = 'reaper' and f.source = '' and f.shared_at between t.now - t.every and t.now + t.every)
on conflict (cycle, source) do update set shared_at = excluded.shared_at
 where (s.shared_at between excluded.shared_at - %(every_ms)s * interval '1 millisecond'
                        and excluded.shared_at + %(every_ms)s * interval '1 millisecond') is not true
returning s.cycle;

-- name: mark_lost_workers
-- Notices the workers that fell silent for longer than their lease without saying goodbye; whoever asks lives.
update relevo.workers w
   set lost_at = relevo.now(%(now)s)
 where w.stopped_at is null and w.lost_at is null and w.worker_id <> %(worker_id)s
   and not relevo.is_alive(w, %(now)s)
returning w.worker_id, w.hostname, w.pid, w.last_seen_at;

-- name: abandon_runs
-- Ends the runs of workers that were lost, stopped or started anew, and names the singletons whose slot is free again.
update relevo.worker_runs r
   set outcome = 'abandoned', finished_at = relevo.now(%(now)s),
       error_message = format('worker %%s was last seen at %%s and did not finish this run',
                              r.worker_id, coalesce(to_char(w.last_seen_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'), 'an unknown time'))
  from relevo.worker_runs o
  left join relevo.workers w on w.worker_id = o.worker_id
 where r.id = o.id and r.outcome = 'running' and o.outcome = 'running'
   and (w.worker_id is null or w.lost_at is not null or w.stopped_at is not null or w.started_at > r.started_at)
returning r.id, r.cycle, r.source, r.worker_id, r.slot_at;

-- name: fold_counts
-- Folds the changes of how many deliveries there are of each status into one row each, passing by what another reaper is at; returns how many.
with taken as (
  delete from relevo.delivery_counts d
   where d.id = any (array(select o.id from relevo.delivery_counts o where o.status <> all (%(left_out)s::text[])
                            order by o.id limit %(limit)s for update skip locked))
  returning d.status, d.deliveries
), folded as (
  insert into relevo.delivery_counts (status, deliveries)
  select t.status, sum(t.deliveries) from taken t group by t.status having sum(t.deliveries) <> 0
)
select count(*)::int from taken;

-- name: find_first_count
-- Returns the number and the status of the first change that fold_counts would fold.
select o.id, o.status from relevo.delivery_counts o where o.status <> all (%(left_out)s::text[]) order by o.id limit 1;

-- name: fold_progress
-- Folds a batch of the changes of events' counts behind a number into their sums, so that reading an event stays cheap; returns how many, and
-- the last one's number.
with taken as (
  delete from relevo.event_progress_deltas x
   where x.id = any (array(select d.id from relevo.event_progress_deltas d
                            where d.id > %(after)s::bigint and d.event_id <> all (%(left_out)s::bigint[])
                            order by d.id limit %(limit)s for update skip locked))
  returning x.id, x.event_id, x.status, x.deliveries
), folded as (
  insert into relevo.event_progress as p (event_id, status, deliveries)
  select t.event_id, t.status, sum(t.deliveries) from taken t group by t.event_id, t.status order by t.event_id, t.status
  on conflict (event_id, status) do update set deliveries = p.deliveries + excluded.deliveries
)
select count(*)::int, max(t.id) from taken t;

-- name: find_first_progress
-- Returns the number and the event of the first change that fold_progress would fold.
select d.id, d.event_id from relevo.event_progress_deltas d
 where d.id > %(after)s::bigint and d.event_id <> all (%(left_out)s::bigint[])
 order by d.id limit 1;

-- name: fold_reactions
-- Adds a batch of the changes of how often events were opened and read to the events, and returns how many of each kind.
select f.kind, f.count from relevo.fold_reactions(%(limit)s) f;

-- name: fold_tallies
-- Folds a batch of tallies that no brake looks at any more into their minutes.
with old as materialized (
  select t.id from relevo.push_tallies t
   where t.at < relevo.now(%(now)s) - %(window_ms)s * interval '1 millisecond'
   order by t.id limit %(limit)s for update skip locked
), taken as (
  delete from relevo.push_tallies t using old o where t.id = o.id
  returning t.project, date_trunc('minute', t.at) as minute, t.sent, t.answers, t.unregistered, t.confirmed, t.failed
)
insert into relevo.push_minutes as m (project, minute, sent, answers, unregistered, confirmed, failed)
select t.project, t.minute, sum(t.sent), sum(t.answers), sum(t.unregistered), sum(t.confirmed), sum(t.failed)
  from taken t group by t.project, t.minute order by t.project, t.minute
on conflict (project, minute) do update
   set sent = m.sent + excluded.sent, answers = m.answers + excluded.answers, unregistered = m.unregistered + excluded.unregistered,
       confirmed = m.confirmed + excluded.confirmed, failed = m.failed + excluded.failed;

-- name: prune_refused_events
-- Forgets events of which nothing was refused for a day.
delete from relevo.refused_events r
 where (r.project, r.event_id) in (select o.project, o.event_id from relevo.refused_events o
                                    where o.last_refused_at < relevo.now(%(now)s) - interval '1 day'
                                    limit %(limit)s for update skip locked);

-- name: pick_deleted_event
-- Locks the first event that was deleted and of which something is left, skipping those that another reaper holds and those left out.
select d.event_id from relevo.deleted_events d where d.event_id <> all (%(left_out)s::bigint[]) order by d.event_id limit 1 for update skip locked;

-- name: delete_leftovers
-- Deletes so many of the deliveries that are left of an event that was deleted, and returns how many rows, at least 1.
select relevo.delete_leftovers(%(event_id)s, %(limit)s);

-- name: fill_inboxes
-- Gives so many phones that have an owner since before 0.4.0 the inbox of that owner, and returns how many.
select relevo.fill_inboxes(%(limit)s);

-- name: follow_moved_phones
-- Brings what waits for so many of the phones that moved to where they are now, and returns how many phones it looked at.
select relevo.follow_moved_phones(%(limit)s, %(now)s);

-- name: put_off_moved_phone
-- Puts the first of the phones that moved behind the others; returns its number before, and its number now.
with first as (
  delete from relevo.moved_phones m
   where m.id = (select o.id from relevo.moved_phones o order by o.id limit 1 for update skip locked)
  returning m.id, m.installation_id, m.moved_at
), last as (
  insert into relevo.moved_phones (installation_id, moved_at) select f.installation_id, f.moved_at from first f
  returning id
)
select f.id, l.id from first f, last l;

-- name: recheck_projects
-- Looks again at personal events that wait for quiet hours of a project whose hours changed: at so many chunks; 0 if no project is left.
select relevo.recheck_projects(%(limit)s, %(now)s);

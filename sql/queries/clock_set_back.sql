-- Waiting times after the database's clock was set back: rows written before have times in the future, and would wait for as long as the jump.
-- Each statement finds what no time of now could have brought about, changes a batch of it, and finds nothing once that is done.

-- name: was_set_back
-- Returns whether the fleet's last turn lies in the future.
select exists (select from relevo.cycle_state s
                where s.cycle = 'reaper' and s.source = '' and s.shared_at > relevo.now(%(now)s) + interval '5 seconds');

-- name: rebase_events
-- Lets a batch of events be fanned out now that were to be when they were made.
update relevo.notification_events e
   set scheduled_at = relevo.now(%(now)s)
 where e.id = any (array(select o.id from relevo.notification_events o
                          where o.state in ('waiting', 'fanning') and o.scheduled_at > relevo.now(%(now)s)
                            and o.created_at > relevo.now(%(now)s) and o.scheduled_at <= o.created_at
                          order by o.id limit %(limit)s for no key update skip locked));

-- name: rebase_fan_outs
-- Gives a batch of events that fan out, or failed to and wait, their turn now: one that comes early costs less than the jump.
update relevo.notification_events e
   set fanout_retry_at = case when e.fanout_retry_at <= relevo.now(%(now)s) then e.fanout_retry_at end,
       turn_at = relevo.now(%(now)s)
 where e.id = any (array(select o.id from relevo.notification_events o
                          where o.state in ('waiting', 'fanning')
                            and (o.fanout_retry_at > relevo.now(%(now)s)
                                 or o.turn_at > relevo.now(%(now)s) + interval '10 seconds') -- where a slice puts its event
                          order by o.id limit %(limit)s for no key update skip locked));

-- name: rebase_chunks
-- Lets a batch of what waits to be sent fall due now that was made later than now, or waits longer than any pause between two attempts.
update relevo.due_chunks q
   set due_at = relevo.now(%(now)s)
 where q.id = any (array(select o.id from relevo.due_chunks o
                          where o.due_at > relevo.now(%(now)s)
                            and (o.created_at > relevo.now(%(now)s)
                                 or o.due_at > relevo.now(%(now)s) + interval '1 millisecond' * greatest(%(longest_ms)s,
                                      (select t.retry_max_ms + coalesce(t.retry_jitter_ms, 0) from relevo.event_types t where t.event_type = o.event_type)))
                          order by o.id limit %(limit)s for update skip locked));

-- name: rebase_receipts
-- Lets a batch of receipts be asked for now whose pushes were sent later than now, or that wait longer than any receipt.
update relevo.awaited_receipts w
   set look_at = relevo.now(%(now)s)
 where w.id = any (array(select o.id from relevo.awaited_receipts o
                          where o.look_at > relevo.now(%(now)s)
                            and (o.sent_at > relevo.now(%(now)s)
                                 or o.look_at > relevo.now(%(now)s) + %(longest_ms)s * interval '1 millisecond')
                          order by o.id limit %(limit)s for update skip locked));

-- name: rebase_claims
-- Gives a batch of claims that last longer than their lease that lease from now on: who lives extends it, and who does not loses it.
update relevo.claims c
   set leased_until = relevo.now(%(now)s) + c.lease_ms * interval '1 millisecond',
       claimed_at = least(c.claimed_at, relevo.now(%(now)s))
 where c.token = any (array(select o.token from relevo.claims o
                             where o.leased_until > relevo.now(%(now)s) + (o.lease_ms + 1000) * interval '1 millisecond'
                             limit %(limit)s for no key update skip locked));

-- name: rebase_leases
-- Gives the leases of nightly cycles that last longer than they may that time from now on.
update relevo.cycle_leases l
   set leased_until = relevo.now(%(now)s) + l.lease_ms * interval '1 millisecond'
 where l.leased_until > relevo.now(%(now)s) + (l.lease_ms + 1000) * interval '1 millisecond';

-- name: rebase_connections
-- Gives connections that are leased for longer than a lease that time from now on.
update relevo.push_connections c
   set leased_until = relevo.now(%(now)s) + %(lease_ms)s * interval '1 millisecond'
 where c.leased_until > relevo.now(%(now)s) + (%(lease_ms)s + 1000) * interval '1 millisecond';

-- name: rebase_workers
-- Takes workers that were seen later than now for seen now: who lives is seen again, and who does not is lost in time.
update relevo.workers w
   set last_seen_at = relevo.now(%(now)s)
 where w.stopped_at is null and w.lost_at is null and w.last_seen_at > relevo.now(%(now)s) + interval '1 second';

-- name: rebase_projects
-- Ends the pauses of a batch of projects: a probe that comes early, or another complaint, costs less than the jump.
update relevo.projects p
   set probe_at = least(p.probe_at, relevo.now(%(now)s)), breaker_since = least(p.breaker_since, relevo.now(%(now)s)),
       rest_until = case when p.rest_until <= relevo.now(%(now)s) then p.rest_until end,
       receipts_after = case when p.receipts_after <= relevo.now(%(now)s) then p.receipts_after end
 where p.project = any (array(select o.project from relevo.projects o
                               where greatest(o.probe_at, o.rest_until, o.receipts_after) > relevo.now(%(now)s)
                               order by o.project limit %(limit)s for no key update skip locked));

-- name: rebase_quotas
-- Lets sources be asked after their usual pause that were asked later than now.
update relevo.source_lanes s
   set not_before = relevo.now(%(now)s) + s.pace_ms * interval '1 millisecond', asked_at = relevo.now(%(now)s)
 where s.asked_at > relevo.now(%(now)s);

-- name: wake_up
-- Wakes the cycles that can go on.
select pg_notify('relevo_wake', u.cycle) from unnest(array['fanout', 'dispatch', 'receipt']) as u(cycle);

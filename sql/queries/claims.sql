-- name: list_composed_types
-- Lists the event types for which a living worker other than this one has a composer.
select distinct c.event_type
  from relevo.workers w cross join unnest(w.composers) as c(event_type)
 where w.worker_id <> %(worker_id)s and relevo.is_alive(w);

-- name: claim_due
-- Claims what is due in one lane of a project, oldest first, and looks where each delivery goes, what stands in its way and what its event
-- says; its JSON as text, so that one that cannot be read is no other's trouble.
select c.*, e.id as content_id, e.title, e.body, e.data, e.push, e.wording, e.texts, e.arguments
  from relevo.claim_due(
    claim => %(token)s, worker => %(worker_id)s, of_cycle => %(cycle)s, of_project => %(project)s, of_lane => %(lane)s, most => %(limit)s,
    given_at => %(now)s, shard => %(shard_index)s, shards => %(shard_count)s, only_types => %(only_types)s, not_types => %(not_types)s,
    not_worded => %(not_worded)s, suspect_lapses => %(suspect_lapses)s, usual_lease_ms => %(lease_ms)s, since => %(since)s,
    in_shadow => %(in_shadow)s) c
  left join lateral (select e.id, e.title, e.body, e.data::text, (case when e.collapse is null and e.opens is null and e.unread_badge is null then e.push
                                  else relevo.push_with_options(e.push, e.event_type, e.collapse, e.opens, e.unread_badge) end)::text as push,
                            e.wording, e.texts::text, e.arguments::text
                       from relevo.notification_events e where e.id = c.event_id) e on true;

-- name: claim_probe
-- Claims a few deliveries for a probe out of the oldest due ones: first those whose phone, event and past nothing speaks against.
select * from relevo.claim_probe(
  claim => %(token)s, worker => %(worker_id)s, of_cycle => %(cycle)s, of_project => %(project)s, of_lane => %(lane)s, most => %(limit)s,
  given_at => %(now)s, shard => %(shard_index)s, shards => %(shard_count)s, only_types => %(only_types)s, not_types => %(not_types)s,
  not_worded => %(not_worded)s, usual_lease_ms => %(lease_ms)s, look_at => %(look_at)s,
  in_shadow => %(in_shadow)s);

-- name: wait_for_locks
-- Lets this transaction wait for a lock as long as a statement may run: longer than a silent transaction may hold it.
select set_config('lock_timeout', '0', true);

-- name: bar_claim
-- Makes a token unusable unless its claim already stands, so that a COMMIT still on its way cannot land after we looked.
insert into relevo.claims (token, worker_id, cycle, claimed_at, lease_ms, leased_until, days, ids)
values (%(token)s, %(worker_id)s, %(cycle)s, relevo.now(%(now)s), %(lease_ms)s::int,
        relevo.now(%(now)s) + %(lease_ms)s::int * interval '1 millisecond', '{}', '{}')
on conflict (token) do nothing
returning token;

-- name: lock_claim
-- Keeps everybody else from the claim while what it holds is written; finds nothing once it was taken back.
select c.token from relevo.claims c where c.token = %(token)s for no key update;

-- name: lock_claim_and_journal
-- Keeps everybody else from the claim, and waits for a journal of it that is not committed yet; finds nothing once it was taken back.
select c.token from relevo.claims c where c.token = %(token)s for update;

-- name: adopt_claim
-- Reads back what a claim holds, its COMMIT answer lost, and looks at it as a claim does.
select * from relevo.adopt_claim(%(token)s, %(now)s);

-- name: renew_claims
-- Extends the claims of this process that nobody holds locked, but none held for three times its lease; returns each that stands.
with standing as materialized (
  select c.token, relevo.now(%(now)s) < c.claimed_at + 3 * c.lease_ms * interval '1 millisecond' as may_go_on
    from relevo.claims c
   where c.token = any (%(tokens)s::uuid[])
), free as materialized (
  select c.token
    from standing s
    join relevo.claims c on c.token = s.token
   where s.may_go_on
     for no key update of c skip locked
), renewed as (
  update relevo.claims c
     set leased_until = relevo.now(%(now)s) + c.lease_ms * interval '1 millisecond'
    from free f
   where c.token = f.token
  returning c.token
)
select s.token, case when not s.may_go_on then 'held_too_long' when r.token is null then 'locked' else 'renewed' end
  from standing s
  left join renewed r on r.token = s.token;

-- name: explain_loss
-- Returns why a claim is no longer ours: its deliveries are gone, finished, or in other hands.
select case when count(*) = 0 then 'not_found'
            when bool_and(d.completed_at is not null) then 'already_completed'
            when exists (select from relevo.claims c where c.token = %(token)s) then 'error'
            else 'taken_by_another_worker' end as reason
  from unnest(%(days)s::date[], %(ids)s::bigint[]) as k(event_day, id)
  cross join lateral (select d.completed_at from relevo.notification_deliveries d
                       where d.event_day = k.event_day and d.id = k.id
                      offset 0) d;

-- name: end_claim
-- Ends a claim, or some of the deliveries that it holds; returns how many became what, and how many are ambiguous.
select * from relevo.end_claim(%(token)s, %(only_ids)s::bigint[], %(lapsed)s, %(poison_lapses)s, %(max_attempts)s, %(timeout_ms)s, %(receipt_ms)s, %(now)s);

-- name: list_claimed
-- Lists the deliveries that a claim holds.
select u.id from relevo.claims c cross join unnest(c.ids) as u(id) where c.token = %(token)s;

-- name: queue_deliveries
-- Puts open deliveries that stand nowhere any more into the queue, in chunks of what falls due together.
select relevo.queue_deliveries(%(days)s::date[], %(ids)s::bigint[], %(due)s::timestamptz[]);

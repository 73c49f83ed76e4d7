-- name: list_leases
-- Lists the event types that have a lease of their own.
select t.event_type, t.lease_ms from relevo.event_types t where t.lease_ms is not null;

-- name: list_composed_types
-- Lists the event types for which a living worker other than this one has a composer.
select distinct c.event_type
  from relevo.workers w cross join unnest(w.composers) as c(event_type)
 where w.worker_id <> %(worker_id)s and w.stopped_at is null and w.lost_at is null
   and w.last_seen_at + w.lease_ms * interval '1 millisecond' > now();

-- name: find_oldest_type
-- Locks the oldest due delivery that nobody else is taking; its type's lease decides which types the next batch may hold.
select d.event_type
  from relevo.notification_deliveries d
 where d.status in ('pending', 'retryable') and d.project = %(project)s and d.lane = %(lane)s
   and d.next_attempt_at <= coalesce(%(now)s::timestamptz, now()) and d.claim_token is null
   and (%(only_types)s::text[] is null or d.event_type = any (%(only_types)s::text[]))
   and (%(not_types)s::text[] is null or d.event_type <> all (%(not_types)s::text[]))
   and (%(shard_count)s::int is null
        or ((uuid_hash_extended(d.installation_id, 0) %% %(shard_count)s::int) + %(shard_count)s::int) %% %(shard_count)s::int = %(shard_index)s::int)
 order by d.next_attempt_at, d.id
 limit 1
   for update skip locked;

-- name: pick_due
-- Locks up to limit due deliveries of one project, lane, lease class and shard, oldest first, passing by what others hold, and
-- looks where each goes and whether it still may: its installation, preference, deadline and event.
select d.event_day, d.id, d.notification_event_id, d.installation_id, d.event_type, d.provider, d.project, d.lane,
       d.at_most_once, d.status, d.attempt_count, d.lapse_count, x.deadline_at, i.token, i.token_version, i.platform, i.locale,
       case when e.id is null then 'event_gone'
            when e.ended_at is not null then 'event_ended'
            when i.handled_before >= d.created_at then 'handled_elsewhere'
            when x.deadline_at <= coalesce(%(now)s::timestamptz, now()) then 'deadline_passed'
            when i.installation_id is null then 'installation_gone'
            when not relevo.may_receive(i) then 'not_allowed'
            when e.category = any (i.opt_outs) then 'opted_out'
            when e.audience = 'matching' and not exists (
              select from relevo.notification_preferences p
               where p.installation_id = d.installation_id and relevo.preference_matches(p, e)) then 'preference_changed'
            when d.lane = 'bulk' and (select exists (select from relevo.event_repeats r where r.held_at is not null)) and exists (
              select from relevo.event_repeats r where r.event_id = d.notification_event_id and r.held_at is not null) then 'repeats_held'
       end as obstacle,
       extract(epoch from x.deadline_at - coalesce(%(now)s::timestamptz, now()))::float8 as seconds_left
  from relevo.notification_deliveries d
  left join relevo.notification_events e on e.id = d.notification_event_id
  left join relevo.device_installations i on i.installation_id = d.installation_id
  -- the deadline is the event's, which follows its tender
  cross join lateral (select case when e.id is null then d.deadline_at else e.deadline_at end as deadline_at) x
 where d.status in ('pending', 'retryable') and d.project = %(project)s and d.lane = %(lane)s
   and d.next_attempt_at <= coalesce(%(now)s::timestamptz, now()) and d.claim_token is null
   and (%(only_types)s::text[] is null or d.event_type = any (%(only_types)s::text[]))
   and (%(not_types)s::text[] is null or d.event_type <> all (%(not_types)s::text[]))
   and (%(shard_count)s::int is null
        or ((uuid_hash_extended(d.installation_id, 0) %% %(shard_count)s::int) + %(shard_count)s::int) %% %(shard_count)s::int = %(shard_index)s::int)
 order by d.next_attempt_at, d.id
 limit %(limit)s
   for update of d skip locked;

-- name: pick_probe
-- Locks deliveries for a probe out of the oldest due ones: first those whose phone, event and past nothing speaks against.
with oldest as materialized (
  select d.event_day, d.id, d.next_attempt_at, d.installation_id, d.notification_event_id, d.last_error_code
    from relevo.notification_deliveries d
   where d.status in ('pending', 'retryable') and d.project = %(project)s and d.lane = %(lane)s
     and d.next_attempt_at <= coalesce(%(now)s::timestamptz, now()) and d.claim_token is null
     and (%(only_types)s::text[] is null or d.event_type = any (%(only_types)s::text[]))
     and (%(not_types)s::text[] is null or d.event_type <> all (%(not_types)s::text[]))
     and (%(shard_count)s::int is null
          or ((uuid_hash_extended(d.installation_id, 0) %% %(shard_count)s::int) + %(shard_count)s::int) %% %(shard_count)s::int = %(shard_index)s::int)
   order by d.next_attempt_at, d.id
   limit %(look_at)s
), chosen as materialized (
  select o.event_day, o.id, row_number() over (
           order by o.installation_id = any (array(select u.installation_id
                                                     from relevo.credential_answers c
                                                     cross join unnest(c.installations, c.faulty) as u(installation_id, faulty)
                                                    where c.project = %(project)s and u.faulty is not false))
                    or o.notification_event_id = any (array(select r.event_id from relevo.refused_events r where r.project = %(project)s)),
                    o.last_error_code is not null, o.next_attempt_at, o.id) as place
    from oldest o
   order by place
   limit %(limit)s
)
select d.event_day, d.id
  from chosen c
  cross join lateral (select d.event_day, d.id from relevo.notification_deliveries d
                       where d.event_day = c.event_day and d.id = c.id and d.status in ('pending', 'retryable') and d.claim_token is null
                         for update skip locked) d
 order by c.place;

-- name: claim_picked
-- Writes the claim and marks the picked deliveries with its token; the rows are locked by this transaction.
with claim as (
  insert into relevo.claims (token, worker_id, cycle, claimed_at, lease_ms, leased_until, days, ids)
  values (%(token)s, %(worker_id)s, %(cycle)s, coalesce(%(now)s::timestamptz, now()), %(lease_ms)s::int,
          coalesce(%(now)s::timestamptz, now()) + %(lease_ms)s::int * interval '1 millisecond', %(days)s::date[], %(ids)s::bigint[])
  returning token
)
update relevo.notification_deliveries d
   set claim_token = claim.token, updated_at = coalesce(%(now)s::timestamptz, now())
  from claim
  cross join unnest(%(days)s::date[], %(ids)s::bigint[]) as k(event_day, id)
 where d.event_day = k.event_day and d.id = k.id;

-- name: wait_for_locks
-- Lets this transaction wait for a lock as long as a statement may run: longer than a silent transaction may hold it.
select set_config('lock_timeout', '0', true);

-- name: bar_claim
-- Makes a token unusable unless its claim already stands, so that a COMMIT still on its way cannot land after we looked.
insert into relevo.claims (token, worker_id, cycle, claimed_at, lease_ms, leased_until, days, ids)
values (%(token)s, %(worker_id)s, %(cycle)s, coalesce(%(now)s::timestamptz, now()), %(lease_ms)s::int,
        coalesce(%(now)s::timestamptz, now()) + %(lease_ms)s::int * interval '1 millisecond', '{}', '{}')
on conflict (token) do nothing
returning token;

-- name: read_claim
-- Reads back a claim's lease and keys.
select c.lease_ms, c.days, c.ids from relevo.claims c where c.token = %(token)s for key share;

-- name: adopt_claim
-- Reads deliveries that a claim holds, its COMMIT answer lost, or that were picked and are nobody's yet, and looks at them as a claim does.
select d.event_day, d.id, d.notification_event_id, d.installation_id, d.event_type, d.provider, d.project, d.lane,
       d.at_most_once, d.status, d.attempt_count, d.lapse_count, x.deadline_at, i.token, i.token_version, i.platform, i.locale,
       case when e.id is null then 'event_gone'
            when e.ended_at is not null then 'event_ended'
            when i.handled_before >= d.created_at then 'handled_elsewhere'
            when x.deadline_at <= coalesce(%(now)s::timestamptz, now()) then 'deadline_passed'
            when i.installation_id is null then 'installation_gone'
            when not relevo.may_receive(i) then 'not_allowed'
            when e.category = any (i.opt_outs) then 'opted_out'
            when e.audience = 'matching' and not exists (
              select from relevo.notification_preferences p
               where p.installation_id = d.installation_id and relevo.preference_matches(p, e)) then 'preference_changed'
            when d.lane = 'bulk' and (select exists (select from relevo.event_repeats r where r.held_at is not null)) and exists (
              select from relevo.event_repeats r where r.event_id = d.notification_event_id and r.held_at is not null) then 'repeats_held'
       end as obstacle,
       extract(epoch from x.deadline_at - coalesce(%(now)s::timestamptz, now()))::float8 as seconds_left
  from unnest(%(days)s::date[], %(ids)s::bigint[]) as k(event_day, id)
  cross join lateral (select * from relevo.notification_deliveries d
                       where d.event_day = k.event_day and d.id = k.id and d.claim_token is not distinct from %(token)s::uuid
                      offset 0) d
  left join relevo.notification_events e on e.id = d.notification_event_id
  left join relevo.device_installations i on i.installation_id = d.installation_id
  -- the deadline is the event's, which follows its tender
  cross join lateral (select case when e.id is null then d.deadline_at else e.deadline_at end as deadline_at) x
 order by d.next_attempt_at, d.id;

-- name: journal_wave
-- The fence before the POST: records which deliveries go into which request, from a live claim with enough lease left, and tells
-- what must not be sent as it was claimed: what got a late ticket, came too late, was ended, or whose installation changed.
with live as materialized (
  select c.token, c.worker_id, exists (select from relevo.late_tickets) as any_late
    from relevo.claims c
   where c.token = %(token)s
     and c.leased_until > coalesce(%(now)s::timestamptz, now()) + %(timeout_ms)s * interval '1 millisecond'
     for key share
), held as materialized (
  select w.request_id, w.event_day, w.id,
         case when t.ticket_id is not null then 'sent'
              when case when e.id is null then d.deadline_at else e.deadline_at end <= coalesce(%(now)s::timestamptz, now())
              then 'deadline_passed'
              when e.ended_at is not null then 'event_ended'
              when i.handled_before >= d.created_at then 'handled_elsewhere'
              when i.installation_id is null then 'installation_gone'
              when not i.may_receive then 'not_allowed'
              when e.category = any (i.opt_outs) then 'opted_out'
              when i.token_version is distinct from w.token_version then 'token_changed'
              else 'send' end as verdict,
         t.ticket_id
    from live
    cross join unnest(%(request_ids)s::uuid[], %(days)s::date[], %(ids)s::bigint[], %(versions)s::int[])
      as w(request_id, event_day, id, token_version)
    cross join lateral (select d.deadline_at, d.provider_ticket_id, d.notification_event_id, d.installation_id, d.created_at
                          from relevo.notification_deliveries d
                         where d.event_day = w.event_day and d.id = w.id and d.claim_token = live.token
                        offset 0) d
    left join lateral (select e.id, e.deadline_at, e.ended_at, e.category from relevo.notification_events e
                        where e.id = d.notification_event_id
                       offset 0) e on true
    left join lateral (select i.installation_id, i.handled_before, i.opt_outs, i.token_version, relevo.may_receive(i) as may_receive
                         from relevo.device_installations i
                        where i.installation_id = d.installation_id
                       offset 0) i on true
    left join lateral (select l.ticket_id from relevo.late_tickets l
                        where live.any_late and l.event_day = w.event_day and l.delivery_id = w.id
                          and l.ticket_id is distinct from d.provider_ticket_id
                        order by l.recorded_at desc limit 1) t on true
), journalled as (
  insert into relevo.push_requests (request_day, id, claim_token, worker_id, project, journalled_at, days, ids)
  select (coalesce(%(now)s::timestamptz, now()) at time zone 'UTC')::date, h.request_id, live.token, live.worker_id, %(project)s,
         coalesce(%(now)s::timestamptz, now()), array_agg(h.event_day), array_agg(h.id)
    from live
    cross join held h
   where h.verdict = 'send'
   group by h.request_id, live.token, live.worker_id
)
-- what may not be sent, and one row with the number of those that may: from a live claim alone
select h.event_day, h.id, h.verdict, h.ticket_id from held h where h.verdict <> 'send'
union all
select null, (select count(*) from held h where h.verdict = 'send'), 'send', null from live;

-- name: recheck_journalled
-- Looks once more at the installations of a wave whose journal is committed: a change that committed while it was written is seen
-- here, and no lock of ours keeps an app waiting for that.
select w.event_day, w.id,
       case when i.installation_id is null then 'installation_gone'
            when not i.may_receive then 'not_allowed'
            when i.token_version is distinct from w.token_version then 'token_changed'
            else 'opted_out' end as verdict,
       null as ticket_id
  from unnest(%(days)s::date[], %(ids)s::bigint[], %(installations)s::uuid[], %(versions)s::int[], %(events)s::bigint[])
    as w(event_day, id, installation_id, token_version, event_id)
  left join lateral (select i.installation_id, i.opt_outs, i.token_version, relevo.may_receive(i) as may_receive
                       from relevo.device_installations i
                      where i.installation_id = w.installation_id
                     offset 0) i on true
 where i.token_version is distinct from w.token_version or not i.may_receive
    or (i.opt_outs <> '{}' and exists (
          select from relevo.notification_events e where e.id = w.event_id and e.category = any (i.opt_outs)));

-- name: read_journalled
-- Reads which deliveries a wave's requests really hold, where some were not ours any more.
select u.id from relevo.push_requests r cross join unnest(r.ids) as u(id)
 where r.claim_token = %(token)s and r.answered_at is null and r.id = any (%(request_ids)s::uuid[]);

-- name: mark_unsent
-- Notes that journalled requests were not even begun, so that whoever ends the claim does not take them for ambiguous.
update relevo.push_requests r
   set answered_at = coalesce(%(now)s::timestamptz, now()), outcome = 'held_back'
 where r.claim_token = %(token)s and r.answered_at is null and r.id = any (%(request_ids)s::uuid[]);

-- name: pick_awaiting
-- Locks up to limit sent deliveries of one project whose receipt is due, the longest due first, passing by what others hold.
select d.event_day, d.id, d.installation_id, d.provider_ticket_id as ticket_id, d.token_version, d.last_attempt_at as sent_at, d.attempt_count
  from relevo.notification_deliveries d
 where d.status = 'sent' and d.project = %(project)s
   and coalesce(d.next_receipt_at, '-infinity') <= coalesce(%(now)s::timestamptz, now()) and d.claim_token is null
   and (%(shard_count)s::int is null
        or ((uuid_hash_extended(d.installation_id, 0) %% %(shard_count)s::int) + %(shard_count)s::int) %% %(shard_count)s::int = %(shard_index)s::int)
 order by coalesce(d.next_receipt_at, '-infinity'), d.id
 limit %(limit)s
   for update skip locked;

-- name: renew_claims
-- Extends the claims of this process that nobody holds locked, but none held for three times its lease; tells of each that stands.
with standing as materialized (
  select c.token, coalesce(%(now)s::timestamptz, now()) < c.claimed_at + 3 * c.lease_ms * interval '1 millisecond' as may_go_on
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
     set leased_until = coalesce(%(now)s::timestamptz, now()) + c.lease_ms * interval '1 millisecond'
    from free f
   where c.token = f.token
  returning c.token
)
select s.token, case when not s.may_go_on then 'held_too_long' when r.token is null then 'locked' else 'renewed' end
  from standing s
  left join renewed r on r.token = s.token;

-- name: explain_loss
-- Tells why a claim is no longer ours: its deliveries are gone, finished, or in other hands.
select case when count(*) = 0 then 'not_found'
            when bool_and(d.completed_at is not null) then 'already_completed'
            when exists (select from relevo.claims c where c.token = %(token)s) then 'error'
            else 'taken_by_another_worker' end as reason
  from unnest(%(days)s::date[], %(ids)s::bigint[]) as k(event_day, id)
  cross join lateral (select d.completed_at from relevo.notification_deliveries d
                       where d.event_day = k.event_day and d.id = k.id
                      offset 0) d;

-- name: lock_claim
-- Keeps a reaper from ending the claim while its outcomes are written; finds nothing once it was taken back.
select c.token from relevo.claims c where c.token = %(token)s for key share;

-- name: settle_deliveries
-- Writes outcomes where the claim's token still stands; a retry is timed, capped and ended by its type's policy.
with outcome as materialized (
  select o.*, coalesce(t.max_attempts, %(max_attempts)s) as max_attempts,
         coalesce(t.retry_base_ms, %(retry_base_ms)s)::bigint as retry_base_ms,
         coalesce(t.retry_max_ms, greatest(%(retry_max_ms)s, t.retry_base_ms))::bigint as retry_max_ms,
         coalesce(t.retry_jitter_ms, %(retry_jitter_ms)s)::bigint as retry_jitter_ms
    from unnest(%(statuses)s::text[], %(spent)s::int[], %(paced)s::boolean[], %(codes)s::text[], %(messages)s::text[],
                %(floors_ms)s::bigint[], %(projects)s::text[], %(not_befores)s::timestamptz[], %(types)s::text[], %(formers)s::text[])
      with ordinality as o(status, spent, paced, code, message, floor_ms, project, not_before, event_type, former_status, kind)
    left join relevo.event_types t on t.event_type = o.event_type
), answer as materialized (
  select a.event_day, a.id, a.ticket_id, a.token_version, o.*, random() as chance
    from unnest(%(days)s::date[], %(ids)s::bigint[], %(kinds)s::int[], %(tickets)s::text[], %(versions)s::int[])
      as a(event_day, id, kind, ticket_id, token_version)
    join outcome o on o.kind = a.kind
   order by a.event_day, a.id -- every writer locks deliveries in this order: no deadlock
), locked as materialized ( -- where there are both final ones and retries, which are written one after the other
  select d.id
    from answer a
    cross join lateral (select d.id from relevo.notification_deliveries d
                         where d.event_day = a.event_day and d.id = a.id and d.claim_token = %(token)s
                           for no key update) d
   where %(mixed)s
), ended_now as (
  update relevo.notification_deliveries d
     set status = a.status,
         attempt_count = d.attempt_count + a.spent,
         lapse_count = 0,
         claim_token = null,
         next_attempt_at = null,
         next_receipt_at = case when a.status = 'sent'
                                then coalesce(%(now)s::timestamptz, now()) + %(receipt_ms)s * interval '1 millisecond' end,
         last_attempt_at = case when a.spent > 0 then coalesce(%(now)s::timestamptz, now()) else d.last_attempt_at end,
         completed_at = case when a.status <> 'sent' then coalesce(%(now)s::timestamptz, now()) end,
         updated_at = coalesce(%(now)s::timestamptz, now()),
         last_error_code = case when a.status = 'sent' then null else coalesce(a.code, d.last_error_code) end,
         last_error_message = case when a.status = 'sent' then null when a.code is not null then a.message
                                   else coalesce(a.message, d.last_error_message) end,
         provider_ticket_id = coalesce(a.ticket_id, d.provider_ticket_id),
         token_version = coalesce(a.token_version, d.token_version)
    from answer a
   where d.event_day = a.event_day and d.id = a.id and d.claim_token = %(token)s and a.status <> 'retryable'
     and (select count(*) from locked) >= 0
  returning d.status, d.notification_event_id as event_id, a.former_status, d.project, a.spent, a.code, d.event_day, d.id, a.ticket_id
), again as materialized (
  select a.*, d.claim_token, d.attempt_count + a.spent as attempts,
         -- what spent no attempt waits no longer than it was told to
         greatest(a.not_before, coalesce(%(now)s::timestamptz, now()) + case when a.paced
           then relevo.retry_delay(d.attempt_count + a.spent, a.retry_base_ms, a.retry_max_ms, a.retry_jitter_ms, a.floor_ms, a.chance)
           else a.floor_ms * interval '1 millisecond' end) as retry_at,
         case when e.id is null then d.deadline_at else e.deadline_at end as deadline_at
    from answer a
    -- here and elsewhere offset 0 keeps this a lookup by key: flattened, it can become batch x batch comparisons
    cross join lateral (select d.claim_token, d.deadline_at, d.attempt_count, d.notification_event_id from relevo.notification_deliveries d
                         where d.event_day = a.event_day and d.id = a.id and d.claim_token = %(token)s
                        offset 0) d
    left join lateral (select e.id, e.deadline_at from relevo.notification_events e
                        where e.id = d.notification_event_id
                       offset 0) e on true
   where a.status = 'retryable'
), verdict as materialized (
  select g.*,
         case when g.paced and g.attempts >= g.max_attempts then 'failed'
              when g.retry_at >= g.deadline_at then 'expired'
              when g.attempts = 0 then 'pending'
              else 'retryable' end as final_status
    from again g
), retried as (
  update relevo.notification_deliveries d
     set status = v.final_status,
         project = coalesce(v.project, d.project),
         attempt_count = v.attempts,
         lapse_count = 0,
         claim_token = null,
         next_attempt_at = case when v.final_status in ('pending', 'retryable') then v.retry_at end,
         last_attempt_at = case when v.spent > 0 then coalesce(%(now)s::timestamptz, now()) else d.last_attempt_at end,
         completed_at = case when v.final_status not in ('pending', 'retryable') then coalesce(%(now)s::timestamptz, now()) end,
         updated_at = coalesce(%(now)s::timestamptz, now()),
         last_error_code = coalesce(v.code, d.last_error_code),
         last_error_message = case when v.code is not null then v.message else coalesce(v.message, d.last_error_message) end,
         token_version = coalesce(v.token_version, d.token_version)
    from verdict v
   where d.event_day = v.event_day and d.id = v.id and d.claim_token = v.claim_token
     and (select count(*) from locked) >= 0
  returning d.status, d.notification_event_id as event_id, v.former_status, d.project, v.spent, v.code, d.event_day, d.id, v.ticket_id
), written as (
  select * from ended_now union all select * from retried
), changed as materialized (
  select w.event_id, w.status, w.former_status, w.project, w.spent, w.code, count(*)::int as n
    from written w group by w.event_id, w.status, w.former_status, w.project, w.spent, w.code
), progress as (
  insert into relevo.event_progress_deltas (event_id, status, deliveries)
  select m.event_id, m.status, sum(m.n)::int
    from (select c.event_id, c.status, c.n from changed c
          union all
          select c.event_id, c.former_status, -c.n from changed c) m
   group by m.event_id, m.status
  having sum(m.n) <> 0
), tallied as (
  insert into relevo.push_tallies (project, at, sent, answers, unregistered)
  select c.project, coalesce(%(now)s::timestamptz, now()), coalesce(sum(c.n) filter (where c.status in ('sent', 'ok')), 0), sum(c.n),
         coalesce(sum(c.n) filter (where c.status = 'invalid'), 0)
    from changed c where c.spent > 0 group by c.project
), repeated as (
  insert into relevo.event_repeat_deltas (event_id, repeats)
  select c.event_id, sum(c.n)::int from changed c where c.spent > 0 and c.former_status = 'retryable' group by c.event_id
), first as materialized (
  select e.id, e.licitacion_id, e.first_sent_at
    from (select distinct c.event_id from changed c where c.status in ('sent', 'ok')) c
    cross join lateral (select e.id, e.licitacion_id, e.first_sent_at from relevo.notification_events e where e.id = c.event_id offset 0) e
), told_of as materialized ( -- tenders are locked before their events, and by their key, as ingest does: no deadlock
  select l.id
    from relevo.licitaciones l
   where l.id in (select f.licitacion_id from first f) and not l.notificada
   order by l.namespace, l.external_id
     for no key update
), begun as materialized ( -- fan-out may hold an event; then the next settle of it notes this
  select n.id
    from first f
    cross join lateral (select e.id from relevo.notification_events e
                         where e.id = f.id and e.first_sent_at is null for no key update skip locked) n
   where f.first_sent_at is null and (select count(*) from told_of) >= 0
), noted as (
  update relevo.notification_events e set first_sent_at = coalesce(%(now)s::timestamptz, now()) from begun b where e.id = b.id
), announced as (
  update relevo.licitaciones l set notificada = true from told_of t where l.id = t.id
), answered as (
  update relevo.push_requests r
     set answered_at = coalesce(%(now)s::timestamptz, now()), outcome = q.outcome
    from unnest(%(request_ids)s::uuid[], %(request_outcomes)s::text[]) as q(id, outcome)
   where r.claim_token = %(token)s and r.answered_at is null and r.id = q.id
), used as (
  delete from relevo.late_tickets l using ended_now w
   where l.event_day = w.event_day and l.delivery_id = w.id and l.ticket_id = w.ticket_id
     and exists (select from relevo.late_tickets)
), ended as (
  delete from relevo.claims c where c.token = %(token)s and %(finish)s
)
select c.status, sum(c.n)::int as deliveries from changed c group by c.status;

-- name: disable_tokens
-- Disables tokens that the push service calls gone, each only if it is still the one that was asked about; they come in order.
update relevo.device_installations i
   set invalidated_at = coalesce(%(now)s::timestamptz, now()), invalid_reason = g.reason,
       updated_at = coalesce(%(now)s::timestamptz, now())
  from (select n.installation_id, u.token_version, u.reason
          from unnest(%(installations)s::uuid[], %(versions)s::int[], %(reasons)s::text[]) as u(installation_id, token_version, reason)
          cross join lateral (select n.installation_id from relevo.device_installations n
                               where n.installation_id = u.installation_id and n.token_version = u.token_version and n.invalidated_at is null
                                 for no key update) n) g
 where i.installation_id = g.installation_id and i.token_version = g.token_version and i.invalidated_at is null;

-- name: settle_receipts
-- Writes what receipts say where the claim's token still stands; one that is still missing is asked for later, up to its end.
with outcome as materialized (
  select *
    from unnest(%(statuses)s::text[], %(spent)s::int[], %(paced)s::boolean[], %(codes)s::text[], %(messages)s::text[], %(floors_ms)s::bigint[])
      with ordinality as o(status, spent, paced, code, message, floor_ms, kind)
), answer as materialized (
  select a.event_day, a.id, o.status, o.spent, o.paced, o.code, o.message, o.floor_ms
    from unnest(%(days)s::date[], %(ids)s::bigint[], %(kinds)s::int[]) as a(event_day, id, kind)
    join outcome o on o.kind = a.kind
   order by a.event_day, a.id
), held as materialized (
  select a.*, d.claim_token, case when e.id is null then d.deadline_at else e.deadline_at end as deadline_at,
         d.notification_event_id as event_id, d.status as former_status, d.sent_at,
         greatest(d.attempt_count + a.spent, 0) as attempts,
         coalesce(t.max_attempts, %(max_attempts)s) as max_attempts,
         coalesce(%(now)s::timestamptz, now()) + case when a.paced then relevo.retry_delay(
           d.attempt_count, coalesce(t.retry_base_ms, %(retry_base_ms)s)::bigint,
           coalesce(t.retry_max_ms, greatest(%(retry_max_ms)s, t.retry_base_ms))::bigint,
           coalesce(t.retry_jitter_ms, %(retry_jitter_ms)s)::bigint, a.floor_ms, random())
           else a.floor_ms * interval '1 millisecond' end as retry_at
    from answer a
    cross join lateral (select d.claim_token, d.deadline_at, d.attempt_count, d.event_type, d.notification_event_id, d.status,
                               coalesce(d.last_attempt_at, d.updated_at) as sent_at
                          from relevo.notification_deliveries d
                         where d.event_day = a.event_day and d.id = a.id and d.claim_token = %(token)s and d.status = 'sent'
                        offset 0) d
    left join lateral (select e.id, e.deadline_at from relevo.notification_events e
                        where e.id = d.notification_event_id
                       offset 0) e on true
    left join relevo.event_types t on t.event_type = d.event_type
), verdict as materialized (
  select h.*,
         case when h.status = 'waiting' and coalesce(%(now)s::timestamptz, now()) >= h.sent_at + %(give_up_ms)s * interval '1 millisecond'
              then 'unconfirmed'
              when h.status = 'waiting' then 'sent'
              when h.status <> 'retryable' then h.status
              when h.paced and h.attempts >= h.max_attempts then 'failed'
              when h.retry_at >= h.deadline_at then 'expired'
              when h.attempts = 0 then 'pending'
              else 'retryable' end as final_status,
         -- each look comes twice as long after the push as the one before, the last one shortly before receipts are cleared
         case when h.floor_ms > 0 then h.retry_at
              when coalesce(%(now)s::timestamptz, now()) >= h.sent_at + %(give_up_ms)s * interval '0.958 millisecond'
              then h.sent_at + %(give_up_ms)s * interval '1 millisecond'
              else least(h.sent_at + 2 * greatest(coalesce(%(now)s::timestamptz, now()) - h.sent_at, %(receipt_ms)s * interval '1 millisecond'),
                         h.sent_at + %(give_up_ms)s * interval '0.958 millisecond') end as look_at
    from held h
), written as (
  update relevo.notification_deliveries d
     set status = v.final_status,
         attempt_count = v.attempts,
         lapse_count = 0,
         claim_token = null,
         next_attempt_at = case when v.final_status in ('pending', 'retryable') then v.retry_at end,
         next_receipt_at = case when v.final_status = 'sent' then v.look_at end,
         completed_at = case when v.final_status not in ('pending', 'retryable', 'sent') then coalesce(%(now)s::timestamptz, now()) end,
         updated_at = coalesce(%(now)s::timestamptz, now()),
         last_error_code = coalesce(v.code, d.last_error_code),
         last_error_message = case when v.code is not null then v.message else coalesce(v.message, d.last_error_message) end,
         provider_receipt_id = case when v.status <> 'waiting' then d.provider_ticket_id else d.provider_receipt_id end
    from verdict v
   where d.event_day = v.event_day and d.id = v.id and d.claim_token = v.claim_token
  returning d.status, v.status as said, v.event_id, v.former_status, d.project, v.code
), progress as (
  insert into relevo.event_progress_deltas (event_id, status, deliveries)
  select m.event_id, m.status, sum(m.n)::int
    from (select w.event_id, w.status, 1 as n from written w
          union all
          select w.event_id, w.former_status, -1 from written w) m
   group by m.event_id, m.status
  having sum(m.n) <> 0
), tallied as (
  insert into relevo.push_tallies (project, at, sent, answers, unregistered)
  select w.project, coalesce(%(now)s::timestamptz, now()), 0, count(*), count(*) filter (where w.status = 'invalid')
    from written w where w.said <> 'waiting' group by w.project
), ended as (
  delete from relevo.claims c where c.token = %(token)s and %(finish)s
)
select w.status, count(*)::int as deliveries from written w group by w.status;

-- name: keep_late_tickets
-- Keeps tickets that arrived after their claim was lost: they close an unclaimed open delivery or stop its next send.
with unsealed as materialized ( -- a month on its way to the archive is not written to any more
  select relevo.hold_open(array(select distinct u.day from unnest(%(days)s::date[]) as u(day))) as days
), late as materialized (
  select a.event_day, a.id, a.ticket_id, a.token_version, d.notification_event_id as event_id, d.status as former_status,
         d.claim_token is null and d.status in ('pending', 'retryable', 'unknown') as closable
    from (select * from unnest(%(days)s::date[], %(ids)s::bigint[], %(tickets)s::text[], %(versions)s::int[]) as u(event_day, id, ticket_id, token_version)
           where u.ticket_id is not null and u.event_day = any ((select s.days from unsealed s)::date[])
           order by u.event_day, u.id) a
    left join lateral (select d.claim_token, d.status, d.provider_ticket_id, d.notification_event_id
                         from relevo.notification_deliveries d
                        where d.event_day = a.event_day and d.id = a.id
                          for no key update) d on true
   where d.provider_ticket_id is distinct from a.ticket_id
), closed as (
  update relevo.notification_deliveries d
     set status = 'sent', provider_ticket_id = l.ticket_id, token_version = l.token_version, next_attempt_at = null, completed_at = null,
         next_receipt_at = coalesce(%(now)s::timestamptz, now()) + %(receipt_ms)s * interval '1 millisecond',
         last_attempt_at = coalesce(%(now)s::timestamptz, now()), updated_at = coalesce(%(now)s::timestamptz, now()),
         last_error_code = null, last_error_message = null
    from late l
   where d.event_day = l.event_day and d.id = l.id and l.closable
  returning d.event_day, d.id, l.event_id, l.former_status, d.project
), tallied as (
  insert into relevo.push_tallies (project, at, sent, answers, unregistered)
  select c.project, coalesce(%(now)s::timestamptz, now()), count(*), count(*), 0 from closed c group by c.project
), progress as (
  insert into relevo.event_progress_deltas (event_id, status, deliveries)
  select m.event_id, m.status, sum(m.n)::int
    from (select c.event_id, 'sent' as status, 1 as n from closed c
          union all
          select c.event_id, c.former_status, -1 from closed c) m
   group by m.event_id, m.status
), kept as (
  insert into relevo.late_tickets (event_day, delivery_id, ticket_id, claim_token, recorded_at)
  select l.event_day, l.id, l.ticket_id, %(token)s, coalesce(%(now)s::timestamptz, now())
    from late l
   where (l.event_day, l.id) not in (select c.event_day, c.id from closed c)
  on conflict do nothing
  returning delivery_id
)
select (select count(*) from closed)::int as closed, (select count(*) from kept)::int as kept,
       relevo.note_first_sent(array(select distinct c.event_id from closed c), %(now)s) as noted;

-- name: end_claim
-- Ends a claim: what was never journalled is due again, what was journalled and not answered is ambiguous.
with gone as (
  delete from relevo.claims c where c.token = %(token)s returning c.token, c.days, c.ids
), keys as materialized (
  select k.event_day, k.id, max(k.journalled_at) as journalled_at
    from (select u.event_day, u.id, null::timestamptz as journalled_at
            from gone cross join unnest(gone.days, gone.ids) as u(event_day, id)
          union all
          select u.event_day, u.id, r.journalled_at
            from relevo.push_requests r cross join unnest(r.days, r.ids) as u(event_day, id)
           where r.claim_token = %(token)s and r.answered_at is null) k
   group by k.event_day, k.id
   order by k.event_day, k.id
), held as materialized (
  select d.event_day, d.id, d.claim_token, d.event_type, d.status, d.attempt_count, d.lapse_count, d.at_most_once, d.next_attempt_at,
         d.notification_event_id as event_id,
         k.journalled_at,
         (select l.ticket_id from relevo.late_tickets l where l.event_day = d.event_day and l.delivery_id = d.id and d.status <> 'sent'
             and l.ticket_id is distinct from d.provider_ticket_id order by l.recorded_at desc limit 1) as late_ticket
    from gone
    cross join keys k
    cross join lateral (select * from relevo.notification_deliveries d
                         where d.event_day = k.event_day and d.id = k.id and d.claim_token = gone.token
                        offset 0) d
), verdict as materialized (
  select h.event_day, h.id, h.claim_token, h.next_attempt_at, h.journalled_at, h.late_ticket, h.event_id, h.status as former_status,
         h.attempt_count + (h.journalled_at is not null)::int as attempts,
         h.lapse_count + (%(lapsed)s and h.journalled_at is null and h.status <> 'sent')::int as lapses,
         case when h.late_ticket is not null or h.status = 'sent' then 'sent'
              when h.journalled_at is null and %(lapsed)s and h.lapse_count + 1 >= %(poison_lapses)s then 'failed'
              when h.journalled_at is null then h.status
              when h.at_most_once then 'unknown'
              when h.attempt_count + 1 >= coalesce(
                (select t.max_attempts from relevo.event_types t where t.event_type = h.event_type), %(max_attempts)s) then 'failed'
              else 'retryable' end as status
    from held h
), written as (
  update relevo.notification_deliveries d
     set status = v.status,
         attempt_count = v.attempts,
         lapse_count = v.lapses,
         claim_token = null,
         next_attempt_at = case when v.status = 'retryable' and v.journalled_at is not null
                                then coalesce(%(now)s::timestamptz, now()) + %(timeout_ms)s * interval '1 millisecond'
                                when v.status in ('pending', 'retryable') then v.next_attempt_at end,
         next_receipt_at = case when v.former_status = 'sent' then d.next_receipt_at
                                when v.status = 'sent' then coalesce(%(now)s::timestamptz, now()) + %(receipt_ms)s * interval '1 millisecond' end,
         last_attempt_at = coalesce(v.journalled_at, d.last_attempt_at),
         completed_at = case when v.status in ('failed', 'unknown') then coalesce(%(now)s::timestamptz, now()) end,
         updated_at = coalesce(%(now)s::timestamptz, now()),
         provider_ticket_id = coalesce(v.late_ticket, d.provider_ticket_id),
         last_error_code = case when v.late_ticket is not null then null
                                when v.journalled_at is not null then 'answer_not_seen'
                                when v.status = 'failed' then 'poison'
                                else d.last_error_code end,
         last_error_message = case when v.late_ticket is not null then null
                                   when v.journalled_at is not null then 'A request was started and its answer was not seen.'
                                   when v.status = 'failed' then format('Its claim lapsed %%s times before a request was started.', v.lapses)
                                   else d.last_error_message end
    from verdict v
   where d.event_day = v.event_day and d.id = v.id and d.claim_token = v.claim_token
  returning d.status, v.journalled_at is not null as ambiguous, v.event_id, v.former_status, v.late_ticket is not null as late
), progress as (
  insert into relevo.event_progress_deltas (event_id, status, deliveries)
  select m.event_id, m.status, sum(m.n)::int
    from (select w.event_id, w.status, 1 as n from written w
          union all
          select w.event_id, w.former_status, -1 from written w) m
   group by m.event_id, m.status
  having sum(m.n) <> 0
), used as (
  delete from relevo.late_tickets l using verdict v
   where l.event_day = v.event_day and l.delivery_id = v.id and l.ticket_id = v.late_ticket
)
select w.status, w.ambiguous, count(*)::int as deliveries, -- once for all, so that no tender is locked after an event
       (select relevo.note_first_sent(array(select distinct l.event_id from written l where l.late), %(now)s)) as noted
  from written w group by w.status, w.ambiguous, w.late;

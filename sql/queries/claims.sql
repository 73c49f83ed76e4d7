-- name: list_composed_types
-- Lists the event types for which a living worker other than this one has a composer.
select distinct c.event_type
  from relevo.workers w cross join unnest(w.composers) as c(event_type)
 where w.worker_id <> %(worker_id)s and w.stopped_at is null and w.lost_at is null
   and w.last_seen_at + w.lease_ms * interval '1 millisecond' > now();

-- name: claim_due
-- Claims what is due in one lane of a project, oldest first, and looks where each delivery goes, what stands in its way and what its event
-- says; its JSON as text, so that one that cannot be read is no other's trouble.
select c.*, e.id, e.title, e.body, e.data, e.push
  from relevo.claim_due(%(token)s, %(worker_id)s, %(cycle)s, %(project)s, %(lane)s, %(limit)s, %(now)s, %(shard_index)s, %(shard_count)s,
                          %(only_types)s, %(not_types)s, %(suspect_lapses)s, %(lease_ms)s, %(since)s) c
  left join lateral (select e.id, e.title, e.body, e.data::text, e.push::text from relevo.notification_events e where e.id = c.event_id) e on true;

-- name: claim_probe
-- Claims a few deliveries for a probe out of the oldest due ones: first those whose phone, event and past nothing speaks against.
select * from relevo.claim_probe(%(token)s, %(worker_id)s, %(cycle)s, %(project)s, %(lane)s, %(limit)s, %(now)s, %(shard_index)s, %(shard_count)s,
                                   %(only_types)s, %(not_types)s, %(lease_ms)s, %(look_at)s);

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

-- name: adopt_claim
-- Reads back what a claim holds, its COMMIT answer lost, and looks at it as a claim does.
select * from relevo.adopt_claim(%(token)s, %(now)s);

-- name: renew_claims
-- Extends the claims of this process that nobody holds locked, but none held for three times its lease; tells of each that stands.
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
-- Tells why a claim is no longer ours: its deliveries are gone, finished, or in other hands.
select case when count(*) = 0 then 'not_found'
            when bool_and(d.completed_at is not null) then 'already_completed'
            when exists (select from relevo.claims c where c.token = %(token)s) then 'error'
            else 'taken_by_another_worker' end as reason
  from unnest(%(days)s::date[], %(ids)s::bigint[]) as k(event_day, id)
  cross join lateral (select d.completed_at from relevo.notification_deliveries d
                       where d.event_day = k.event_day and d.id = k.id
                      offset 0) d;

-- name: end_claim
-- Ends a claim: what was never journalled is due again, what was journalled and not answered is ambiguous; tells what goes into the queue.
-- `keys` is what the claim holds, each with its unanswered request if it was in one; `held` what of that is still open, with a late ticket if one
-- waits. `verdict` says what becomes of it: sent by that ticket; as before, a lapse more if its worker was lost, and poison after too many; or,
-- its answer not seen, unknown if it may not come twice, failed after its last attempt, and else tried again. What follows tells others what
-- was written, as a settle does. A claim of receipts only lets go of them.
with gone as materialized (
  delete from relevo.claims c where c.token = %(token)s returning c.cycle, c.days, c.ids, c.due_at
), released as ( -- a claim of receipts: they are asked for again
  update relevo.awaited_receipts r set claim_token = null where r.claim_token = %(token)s
), keys as materialized (
  select k.event_day, k.id, max(k.journalled_at) as journalled_at, (array_agg(k.request_id) filter (where not k.held))[1] as request_id
    from (select u.event_day, u.id, null::timestamptz as journalled_at, null::uuid as request_id, true as held
            from gone cross join unnest(gone.days, gone.ids) as u(event_day, id) where gone.cycle <> 'receipt'
          union all
          select u.event_day, u.id, r.journalled_at, r.id, false
            from relevo.push_requests r cross join unnest(r.days, r.ids) as u(event_day, id)
           where r.claim_token = %(token)s and r.answered_at is null) k
   group by k.event_day, k.id
  having bool_or(k.held)
   order by k.event_day, k.id
), held as materialized (
  select d.event_day, d.id, d.event_type, d.status, d.attempt_count, d.lapse_count, d.notification_event_id as event_id, k.journalled_at,
         k.request_id, coalesce((select e.at_most_once from relevo.notification_events e where e.id = d.notification_event_id), d.at_most_once) as at_most_once,
         (select l.ticket_id from relevo.late_tickets l where l.event_day = d.event_day and l.delivery_id = d.id
             and l.ticket_id is distinct from d.provider_ticket_id order by l.recorded_at desc limit 1) as late_ticket
    from keys k
    cross join lateral (select * from relevo.notification_deliveries d
                         where d.event_day = k.event_day and d.id = k.id and d.status in ('pending', 'retryable')
                        offset 0) d
), verdict as materialized (
  select h.event_day, h.id, h.journalled_at, h.request_id, h.late_ticket, h.event_id, h.status as former_status,
         h.attempt_count + (h.journalled_at is not null)::int as attempts,
         h.lapse_count + (%(lapsed)s and h.journalled_at is null)::int as lapses,
         case when h.late_ticket is not null then 'sent'
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
         last_attempt_at = coalesce(v.journalled_at, d.last_attempt_at),
         completed_at = case when v.status in ('failed', 'unknown') then relevo.now(%(now)s) end,
         updated_at = relevo.now(%(now)s),
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
   where d.event_day = any (array[v.event_day]) and d.id = v.id
  returning d.event_day, d.id, d.status, d.project, d.installation_id, d.provider_ticket_id, d.token_version, d.attempt_count, d.last_error_code,
            d.last_error_message, v.journalled_at is not null as ambiguous, v.request_id, v.event_id, v.former_status, v.late_ticket is not null as late
), progress as materialized (
  select relevo.move_counts(array_agg(w.event_id), array_agg(w.former_status), array_agg(w.status)) from written w
), used as (
  delete from relevo.late_tickets l using verdict v
   where l.event_day = v.event_day and l.delivery_id = v.id and l.ticket_id = v.late_ticket
), awaited as (
  insert into relevo.awaited_receipts (project, look_at, sent_at, days, ids, installations, tickets, versions, attempts)
  select w.project, relevo.now(%(now)s) + %(receipt_ms)s * interval '1 millisecond', relevo.now(%(now)s),
         array_agg(w.event_day), array_agg(w.id), array_agg(w.installation_id), array_agg(w.provider_ticket_id), array_agg(w.token_version),
         array_agg(w.attempt_count)
    from (select w.*, (row_number() over () - 1) / 100 as piece from written w where w.status = 'sent') w
   group by w.project, w.piece
), tallied as (
  insert into relevo.push_tallies (project, at, sent, answers, unregistered)
  select w.project, relevo.now(%(now)s), count(*), count(*), 0 from written w where w.late group by w.project
), dead as (
  insert into relevo.dead_letters (event_day, delivery_id, event_id, project, error_code, died_at)
  select w.event_day, w.id, w.event_id, w.project, w.last_error_code, relevo.now(%(now)s) from written w where w.status = 'failed'
  on conflict (event_day, delivery_id) do update -- a stray one
     set event_id = excluded.event_id, project = excluded.project, error_code = excluded.error_code, died_at = excluded.died_at
), told as ( -- whose fate is unknown, and what killed whoever held it; only the first twenty of a delivery are kept
  insert into relevo.failed_attempts (event_day, delivery_id, n, at, attempt, found_by, became, error_code, error_message, request_id)
  select w.event_day, w.id, f.n, relevo.now(%(now)s), w.attempt_count, case when %(lapsed)s then 'reaper' else 'dispatch' end, w.status,
         w.last_error_code, w.last_error_message, w.request_id
    from written w
    cross join lateral (select coalesce(max(f.n), 0) + 1 as n from relevo.failed_attempts f where f.event_day = w.event_day and f.delivery_id = w.id) f
   where (w.ambiguous or w.status = 'failed') and w.status <> 'sent' and f.n <= 20
  on conflict do nothing
)
select w.status, w.ambiguous, count(*)::int as deliveries, -- once for all, so that no tender is locked after an event
       (select relevo.note_first_sent(array(select distinct l.event_id from written l where l.late), %(now)s)) as noted,
       array_agg(w.event_day) as days, array_agg(w.id) as ids,
       case when w.ambiguous then relevo.now(%(now)s) + %(timeout_ms)s * interval '1 millisecond'
            else coalesce((select g.due_at from gone g), relevo.now(%(now)s)) end as due_at
  from written w where (select count(*) from progress) > 0 group by w.status, w.ambiguous, w.late;

-- name: queue_deliveries
-- Puts open deliveries that stand nowhere any more into the queue, in chunks of what falls due together.
select relevo.queue_deliveries(%(days)s::date[], %(ids)s::bigint[], %(due)s::timestamptz[]);

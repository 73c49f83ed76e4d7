-- name: claim_awaited
-- Claims sent deliveries of a project whose receipts are due, the longest due first, as many requests' worth as fit, at least one.
select * from relevo.claim_awaited(%(token)s, %(worker_id)s, %(project)s, %(limit)s, %(now)s, %(shard_index)s, %(shard_count)s, %(lease_ms)s);

-- name: settle_confirmed
-- Confirms all that a claim of receipts holds, the usual answer, and ends it; null if it does not hold what was asked for.
select relevo.settle_confirmed(%(token)s, %(asked)s, %(now)s);

-- name: settle_receipts
-- Writes what receipts say of what the claim holds, and ends it; one that is still missing is asked for later, up to its end; a retry is
-- named for the queue. `member` is what the claim holds, request by request; `answer` what was told of it, `missing` the rest, which is
-- `unconfirmed` once its time is over, and else put back with the time of its next look, in place of the row it came from. Retries get
-- their time in `again` and their status in `verdict`, as in a settle: they may be the last, or come too late. `ended_now` and `retried` write
-- deliveries that are still sent, in the order of locks; what follows tells others what was written.
with outcome as materialized (
  select o.*, random() as chance
    from unnest(%(statuses)s::text[], %(spent)s::int[], %(paced)s::boolean[], %(codes)s::text[], %(messages)s::text[], %(floors_ms)s::bigint[])
      with ordinality as o(status, spent, paced, code, message, floor_ms, kind)
), member as materialized (
  select u.*, r.project, r.look_at, r.sent_at
    from relevo.awaited_receipts r
    cross join unnest(r.days, r.ids, r.installations, r.tickets, r.versions, r.attempts)
      as u(event_day, id, installation_id, ticket_id, token_version, attempt_count)
   where r.claim_token = %(token)s and exists (select from relevo.claims c where c.token = %(token)s)
), said as materialized (
  select a.event_day, a.id, a.kind
    from unnest(%(days)s::date[], %(ids)s::bigint[], %(kinds)s::int[]) as a(event_day, id, kind)
   where (a.id in (select m.id from member m)) is true
), answer as materialized (
  select a.event_day, a.id, o.*
    from said a
    join outcome o on o.kind = a.kind
   where o.status <> 'waiting'
   order by a.event_day, a.id
), held as materialized (
  select a.*, d.event_id, d.event_type, d.sent_at, greatest(d.attempt_count + a.spent, 0) as attempts, d.attempt_count as former_attempts
    from answer a
    cross join lateral (select d.attempt_count, d.event_type, d.notification_event_id as event_id, coalesce(d.last_attempt_at, d.updated_at) as sent_at
                          from relevo.notification_deliveries d
                         where d.event_day = a.event_day and d.id = a.id and d.status = 'sent'
                        offset 0) d
   where a.status = 'retryable'
), again as materialized (
  select h.*, relevo.now(%(now)s) + case when h.paced then relevo.retry_delay(
           h.former_attempts, coalesce(t.retry_base_ms, %(retry_base_ms)s)::bigint,
           coalesce(t.retry_max_ms, greatest(%(retry_max_ms)s, t.retry_base_ms))::bigint,
           coalesce(t.retry_jitter_ms, %(retry_jitter_ms)s)::bigint, h.floor_ms, h.chance)
           else h.floor_ms * interval '1 millisecond' end as retry_at,
         coalesce(t.max_attempts, %(max_attempts)s) as max_attempts,
         (select e.deadline_at from relevo.notification_events e where e.id = h.event_id) as deadline_at
    from held h
    left join relevo.event_types t on t.event_type = h.event_type
), verdict as materialized (
  select g.event_day, g.id, g.attempts, g.former_attempts, g.retry_at,
         case when g.paced and g.attempts >= g.max_attempts then 'failed'
              when g.retry_at >= g.deadline_at then 'expired'
              when g.attempts = 0 then 'pending'
              else 'retryable' end as status, g.code, g.message
    from again g
), missing as materialized ( -- told to wait, or not told of at all; each look comes twice as long after the push as the one before, the
  -- last one shortly before receipts are cleared
  select m.*, w.told and relevo.now(%(now)s) >= m.sent_at + %(give_up_ms)s * interval '1 millisecond' as is_over,
         case when not w.told then m.look_at
              when w.floor_ms > 0 then relevo.now(%(now)s) + w.floor_ms * interval '1 millisecond'
              when relevo.now(%(now)s) >= m.sent_at + %(give_up_ms)s * interval '0.958 millisecond'
              then m.sent_at + %(give_up_ms)s * interval '1 millisecond'
              else least(m.sent_at + 2 * greatest(relevo.now(%(now)s) - m.sent_at, %(receipt_ms)s * interval '1 millisecond'),
                         m.sent_at + %(give_up_ms)s * interval '0.958 millisecond') end as next_look_at
    from member m
    cross join lateral (select (m.id in (select a.id from said a)) is true as told,
                               (select max(o.floor_ms) from outcome o where o.status = 'waiting') as floor_ms) w
   where (m.id in (select a.id from answer a)) is not true
), final as materialized (
  select a.event_day, a.id, a.status, a.spent, a.code, a.message, a.status as said from answer a where a.status <> 'retryable'
  union all
  select m.event_day, m.id, 'unconfirmed', 0, null, null, 'waiting' from missing m where m.is_over
  order by 1, 2
), locked as materialized (
  select d.id
    from (select f.event_day, f.id from final f union all select v.event_day, v.id from verdict v order by 1, 2) k
    cross join lateral (select d.id from relevo.notification_deliveries d where d.event_day = k.event_day and d.id = k.id for no key update) d
   where (select count(*) from verdict) > 0
), ended_now as (
  update relevo.notification_deliveries d
     set status = f.status,
         attempt_count = greatest(d.attempt_count + f.spent, 0),
         completed_at = relevo.now(%(now)s),
         updated_at = relevo.now(%(now)s),
         last_error_code = coalesce(f.code, d.last_error_code),
         last_error_message = case when f.code is not null then f.message else coalesce(f.message, d.last_error_message) end,
         provider_receipt_id = case when f.said <> 'waiting' then d.provider_ticket_id else d.provider_receipt_id end
    from final f
   where d.event_day = any (array[f.event_day]) and d.id = f.id and d.status = 'sent'
     and (select count(*) from locked) >= 0
  returning d.event_day, d.id, d.status, d.notification_event_id as event_id, d.project, d.last_error_code as code, f.said,
            d.attempt_count as attempt, f.code as said_code, f.message
), retried as (
  update relevo.notification_deliveries d
     set status = v.status,
         attempt_count = v.attempts,
         lapse_count = 0,
         completed_at = case when v.status in ('failed', 'expired') then relevo.now(%(now)s) end,
         updated_at = relevo.now(%(now)s),
         last_error_code = coalesce(v.code, d.last_error_code),
         last_error_message = case when v.code is not null then v.message else coalesce(v.message, d.last_error_message) end,
         provider_receipt_id = d.provider_ticket_id
    from verdict v
   where d.event_day = any (array[v.event_day]) and d.id = v.id and d.status = 'sent'
     and (select count(*) from locked) >= 0
  returning d.event_day, d.id, d.status, d.notification_event_id as event_id, d.project, d.last_error_code as code, 'retryable' as said, v.retry_at,
            v.former_attempts as attempt, v.code as said_code, v.message
), written as (
  select e.event_day, e.id, e.status, e.event_id, e.project, e.code, e.said, e.attempt, e.said_code, e.message from ended_now e
  union all
  select r.event_day, r.id, r.status, r.event_id, r.project, r.code, r.said, r.attempt, r.said_code, r.message from retried r
), done as (
  delete from relevo.awaited_receipts r where r.claim_token = %(token)s and exists (select from relevo.claims c where c.token = %(token)s)
), put_back as (
  insert into relevo.awaited_receipts (project, look_at, sent_at, days, ids, installations, tickets, versions, attempts)
  select m.project, m.next_look_at, m.sent_at, array_agg(m.event_day), array_agg(m.id), array_agg(m.installation_id), array_agg(m.ticket_id),
         array_agg(m.token_version), array_agg(m.attempt_count)
    from (select m.*, (row_number() over (partition by m.project, m.next_look_at, m.sent_at) - 1) / 100 as piece from missing m where not m.is_over) m
   group by m.project, m.next_look_at, m.sent_at, m.piece
), dead as (
  insert into relevo.dead_letters (event_day, delivery_id, event_id, project, error_code, died_at)
  select w.event_day, w.id, w.event_id, w.project, w.code, relevo.now(%(now)s) from written w where w.status = 'failed'
  on conflict (event_day, delivery_id) do update -- a stray one
     set event_id = excluded.event_id, project = excluded.project, error_code = excluded.error_code, died_at = excluded.died_at
), told as ( -- only the first twenty of a delivery are kept
  insert into relevo.failed_attempts (event_day, delivery_id, n, at, attempt, found_by, became, error_code, error_message)
  select w.event_day, w.id, f.n, relevo.now(%(now)s), w.attempt, 'receipt', w.status, w.said_code, w.message
    from written w
    cross join lateral (select coalesce(max(f.n), 0) + 1 as n from relevo.failed_attempts f where f.event_day = w.event_day and f.delivery_id = w.id) f
   where w.said in ('retryable', 'invalid', 'failed') and f.n <= 20
  on conflict do nothing
), progress as materialized (
  select relevo.move_counts(array_agg(w.event_id), array_agg('sent'::text), array_agg(w.status)) from written w
), tallied as (
  insert into relevo.push_tallies (project, at, sent, answers, unregistered, confirmed, failed)
  select w.project, relevo.now(%(now)s), 0, count(*), count(*) filter (where w.status = 'invalid'),
         count(*) filter (where w.status = 'ok'), count(*) filter (where w.status = 'failed')
    from written w where w.said <> 'waiting' group by w.project
), ended as (
  delete from relevo.claims c where c.token = %(token)s
)
select w.status, count(*)::int as deliveries, null::date[] as days, null::bigint[] as ids, null::timestamptz[] as due
  from written w where (select count(*) from progress) > 0 group by w.status
union all
select 'sent', count(*)::int, null, null, null from missing m where not m.is_over having count(*) > 0
union all
select null, 0, array_agg(r.event_day), array_agg(r.id), array_agg(r.retry_at) from retried r where r.status in ('pending', 'retryable') having count(*) > 0;

-- What was answered is written under the lock of its claim (lock_claim, a statement of its own, so that the next one sees the claim as it is
-- then). A delivery is the claim's exactly while its id stands in the claim; what is settled is taken out in the same statement, so that
-- to settle the same again writes nothing.
--
-- One lock order for all who write: event (to sweep, end or delete it); chunk, claim, awaited receipts or dead letter; delivery by (event_day, id),
-- with what is told of its failures; tender; installation; project. An event that is only told of its first push is passed by if somebody holds
-- it; ingest locks a tender before the events that it ends, so whoever holds an event asks for no tender. Settle and reaper, journal and reaper
-- are serialised by the claim's row; cancel, redrive and seal own the chunk, the dead letter or the month they take away; a late ticket and a
-- send are serialised by nothing: one that is committed before the journal looks is seen.
--
-- Rows are written by a key whose first part is any of an array of one: joined by plain equality, a plan may begin with the whole table, which is
-- as cheap while it is small, and connections keep their plans.

-- name: settle_sent
-- Settles what was sent of requests, under the lock of their claim; null if the general statement has to.
select relevo.settle_sent(%(token)s, %(project)s, %(ids)s::bigint[], %(unsent)s::int[], %(tickets)s::text[], %(installations)s::uuid[],
                            %(versions)s::int[], %(attempts)s::smallint[], %(request_ids)s::uuid[], %(firsts)s::int[], %(lasts)s::int[],
                            %(events)s::bigint[], %(formers)s::text[], %(counts)s::int[], %(receipt_ms)s, %(finish)s, %(now)s);

-- name: settle_deliveries
-- Writes outcomes of what the claim holds; a retry is timed, capped and ended by its type's policy, and named for the queue. Answers come in
-- sorts (`outcome`): what was said, in which request, of which type. `answer` is what the claim still holds of them, in the order of locks;
-- what ends unsent although a late ticket waits was sent. Final ones are written by `ended_now`; retries get their time in `again` and their
-- status in `verdict`, for they may be the last, or come too late, and are written by `retried`. All that follows tells others what was
-- written: awaited receipts, dead letters, failures, counts, tallies, repeats, and the first push of an event and its tender. At the end the
-- requests are answered, used tickets deleted, and the claim keeps `rest`, with a longer lease, or goes. It tells how many ended how, and
-- which are to be queued, when.
with live as materialized (
  select c.days, c.ids, exists (select from relevo.late_tickets) as any_late from relevo.claims c where c.token = %(token)s
), outcome as materialized ( -- one chance for each sort of answer of a request: what failed together retries together
  select o.*, random() as chance, coalesce(t.max_attempts, %(max_attempts)s) as max_attempts,
         coalesce(t.retry_base_ms, %(retry_base_ms)s)::bigint as retry_base_ms,
         coalesce(t.retry_max_ms, greatest(%(retry_max_ms)s, t.retry_base_ms))::bigint as retry_max_ms,
         coalesce(t.retry_jitter_ms, %(retry_jitter_ms)s)::bigint as retry_jitter_ms
    from unnest(%(statuses)s::text[], %(spent)s::int[], %(paced)s::boolean[], %(codes)s::text[], %(messages)s::text[],
                %(floors_ms)s::bigint[], %(projects)s::text[], %(not_befores)s::timestamptz[], %(types)s::text[], %(formers)s::text[],
                %(in_requests)s::uuid[])
      with ordinality as o(said, spent, paced, code, message, floor_ms, project, not_before, event_type, former_status, request_id, kind)
    left join relevo.event_types t on t.event_type = o.event_type
), answer as materialized (
  select a.event_day, a.id, coalesce(a.ticket_id, l.ticket_id) as ticket_id, a.token_version, o.*,
         case when l.ticket_id is not null then 'sent' else o.said end as status
    from live
    cross join unnest(%(days)s::date[], %(ids)s::bigint[], %(kinds)s::int[], %(tickets)s::text[], %(versions)s::int[])
      as a(event_day, id, kind, ticket_id, token_version)
    join outcome o on o.kind = a.kind
    left join lateral (select l.ticket_id -- what ends unsent was sent after all if a ticket came late
                         from relevo.late_tickets l join relevo.notification_deliveries d on d.event_day = l.event_day and d.id = l.delivery_id
                        where live.any_late and o.spent = 0 and o.said not in ('sent', 'retryable') and l.event_day = a.event_day and l.delivery_id = a.id
                          and l.ticket_id is distinct from d.provider_ticket_id
                        order by l.recorded_at desc limit 1) l on true
   where (a.id in (select u.id from live m cross join unnest(m.ids) as u(id))) is true
   order by a.event_day, a.id -- every writer locks deliveries in this order: no deadlock
), locked as materialized ( -- where there are both final ones and retries, which are written one after the other
  select d.id
    from answer a
    cross join lateral (select d.id from relevo.notification_deliveries d
                         where d.event_day = a.event_day and d.id = a.id
                           for no key update) d
   where %(mixed)s
), ended_now as (
  update relevo.notification_deliveries d
     set status = a.status,
         attempt_count = d.attempt_count + a.spent,
         lapse_count = 0,
         last_attempt_at = case when a.spent > 0 then relevo.now(%(now)s) else d.last_attempt_at end,
         completed_at = case when a.status <> 'sent' then relevo.now(%(now)s) end,
         updated_at = relevo.now(%(now)s),
         last_error_code = case when a.status = 'sent' then null else coalesce(a.code, d.last_error_code) end,
         last_error_message = case when a.status = 'sent' then null when a.code is not null then a.message
                                   else coalesce(a.message, d.last_error_message) end,
         provider_ticket_id = coalesce(a.ticket_id, d.provider_ticket_id),
         token_version = coalesce(a.token_version, d.token_version)
    from answer a
   where d.event_day = any (array[a.event_day]) and d.id = a.id and a.status <> 'retryable'
     and (select count(*) from locked) >= 0
  returning d.status, d.notification_event_id as event_id, a.former_status, d.project, a.spent, d.last_error_code as code, d.event_day, d.id,
            d.provider_ticket_id as ticket_id, d.installation_id, d.token_version, d.attempt_count, a.code as said_code, a.message, a.request_id
), again as materialized (
  select a.*, d.attempt_count + a.spent as attempts,
         -- what spent no attempt waits no longer than it was told to
         greatest(a.not_before, relevo.now(%(now)s) + case when a.paced
           then relevo.retry_delay(d.attempt_count + a.spent, a.retry_base_ms, a.retry_max_ms, a.retry_jitter_ms, a.floor_ms, a.chance)
           else a.floor_ms * interval '1 millisecond' end) as retry_at,
         e.deadline_at
    from answer a
    -- here and elsewhere offset 0 keeps this a lookup by key: flattened, it can become batch x batch comparisons
    cross join lateral (select d.attempt_count, d.notification_event_id from relevo.notification_deliveries d
                         where d.event_day = a.event_day and d.id = a.id
                        offset 0) d
    left join lateral (select e.deadline_at from relevo.notification_events e
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
         last_attempt_at = case when v.spent > 0 then relevo.now(%(now)s) else d.last_attempt_at end,
         completed_at = case when v.final_status not in ('pending', 'retryable') then relevo.now(%(now)s) end,
         updated_at = relevo.now(%(now)s),
         last_error_code = coalesce(v.code, d.last_error_code),
         last_error_message = case when v.code is not null then v.message else coalesce(v.message, d.last_error_message) end,
         token_version = coalesce(v.token_version, d.token_version)
    from verdict v
   where d.event_day = any (array[v.event_day]) and d.id = v.id
     and (select count(*) from locked) >= 0
  returning d.status, d.notification_event_id as event_id, v.former_status, d.project, v.spent, d.last_error_code as code, d.event_day, d.id,
            d.provider_ticket_id as ticket_id, d.installation_id, d.token_version, d.attempt_count, v.code as said_code, v.message, v.request_id
), written as (
  select * from ended_now union all select * from retried
), changed as materialized (
  select w.event_id, w.status, w.former_status, w.project, w.spent, count(*)::int as n
    from written w group by w.event_id, w.status, w.former_status, w.project, w.spent
), awaited as (
  insert into relevo.awaited_receipts (project, look_at, sent_at, days, ids, installations, tickets, versions, attempts)
  select w.project, relevo.now(%(now)s) + %(receipt_ms)s * interval '1 millisecond', relevo.now(%(now)s),
         array_agg(w.event_day), array_agg(w.id), array_agg(w.installation_id), array_agg(w.ticket_id), array_agg(w.token_version),
         array_agg(w.attempt_count)
    from (select w.*, (row_number() over () - 1) / 100 as piece from ended_now w where w.status = 'sent') w
   group by w.project, w.piece
), dead as (
  insert into relevo.dead_letters (event_day, delivery_id, event_id, project, error_code, died_at)
  select w.event_day, w.id, w.event_id, w.project, w.code, relevo.now(%(now)s) from written w where w.status = 'failed'
  on conflict (event_day, delivery_id) do update -- a stray one
     set event_id = excluded.event_id, project = excluded.project, error_code = excluded.error_code, died_at = excluded.died_at
), told as ( -- what cost an attempt, or ended it; only the first twenty of a delivery are kept
  insert into relevo.failed_attempts (event_day, delivery_id, n, at, attempt, found_by, became, error_code, error_message, request_id)
  select w.event_day, w.id, f.n, relevo.now(%(now)s), w.attempt_count, 'dispatch', w.status, w.said_code, w.message, w.request_id
    from written w
    cross join lateral (select coalesce(max(f.n), 0) + 1 as n from relevo.failed_attempts f where f.event_day = w.event_day and f.delivery_id = w.id) f
   where (w.status = 'failed' or w.spent > 0 and w.status in ('retryable', 'pending', 'invalid', 'expired', 'unknown')) and f.n <= 20
  on conflict do nothing
), progress as materialized (
  select relevo.move_counts(array_agg(c.event_id), array_agg(c.former_status), array_agg(c.status), array_agg(c.n)) from changed c
), tallied as (
  insert into relevo.push_tallies (project, at, sent, answers, unregistered, failed)
  select c.project, relevo.now(%(now)s), coalesce(sum(c.n) filter (where c.status in ('sent', 'ok')), 0), sum(c.n),
         coalesce(sum(c.n) filter (where c.status = 'invalid'), 0), coalesce(sum(c.n) filter (where c.status = 'failed'), 0)
    from changed c where c.spent > 0 or c.status = 'sent' group by c.project -- a late ticket's spent its attempt before
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
  update relevo.notification_events e set first_sent_at = relevo.now(%(now)s) from begun b where e.id = b.id
), announced as (
  update relevo.licitaciones l set notificada = true from told_of t where l.id = t.id
), answered as (
  update relevo.push_requests r
     set answered_at = relevo.now(%(now)s), outcome = q.outcome
    from unnest(%(request_ids)s::uuid[], %(request_outcomes)s::text[]) as q(id, outcome)
   where r.claim_token = %(token)s and r.answered_at is null and r.id = q.id
), used as (
  delete from relevo.late_tickets l using ended_now w
   where (select m.any_late from live m) and l.event_day = w.event_day and l.delivery_id = w.id and l.ticket_id = w.ticket_id
), rest as materialized ( -- what the claim still holds
  select coalesce(array_agg(u.event_day), '{}') as days, coalesce(array_agg(u.id), '{}') as ids
    from live cross join unnest(live.days, live.ids) as u(event_day, id)
   where (u.id in (select a.id from answer a)) is not true
), shrunk as (
  update relevo.claims c
     set days = r.days, ids = r.ids,
         leased_until = case when relevo.now(%(now)s) < c.claimed_at + 3 * c.lease_ms * interval '1 millisecond'
                             then greatest(c.leased_until, relevo.now(%(now)s) + c.lease_ms * interval '1 millisecond')
                             else c.leased_until end
    from rest r
   where c.token = %(token)s and not (%(finish)s and r.ids = '{}')
), ended as (
  delete from relevo.claims c using rest r where c.token = %(token)s and %(finish)s and r.ids = '{}'
)
select c.status, sum(c.n)::int as deliveries, null::date[] as days, null::bigint[] as ids, null::timestamptz[] as due
  from changed c where (select count(*) from progress) > 0 group by c.status
union all
select null, 0, array_agg(v.event_day), array_agg(v.id), array_agg(v.retry_at) from verdict v where v.final_status in ('pending', 'retryable')
having count(*) > 0;

-- name: disable_tokens
-- Disables tokens that the push service calls gone, each only if it is still the one that was asked about; they come in order.
with gone as materialized (
  select n.installation_id, u.token_version, u.reason
    from unnest(%(installations)s::uuid[], %(versions)s::int[], %(reasons)s::text[]) as u(installation_id, token_version, reason)
    cross join lateral (select n.installation_id from relevo.device_installations n
                         where n.installation_id = u.installation_id and n.token_version = u.token_version and n.invalidated_at is null
                           for no key update) n
)
update relevo.device_installations i
   set invalidated_at = relevo.now(%(now)s), invalid_reason = g.reason,
       updated_at = relevo.now(%(now)s)
  from gone g
 where i.installation_id = any (array[g.installation_id]) and i.token_version = g.token_version
   and i.invalidated_at is null;

-- name: fail_doubted
-- Makes dead letters of what this transaction wrote down as invalid while the brake doubts that so many phones are gone; tells how many. They
-- stay counted as unregistered, which is what the brake judges by.
with meant as materialized (
  select u.event_day, u.id from unnest(%(days)s::date[], %(ids)s::bigint[]) as u(event_day, id) order by u.event_day, u.id
), doubted as (
  update relevo.notification_deliveries d set status = 'failed'
    from meant a
   where d.event_day = any (array[a.event_day]) and d.id = a.id and d.status = 'invalid'
     and d.completed_at = relevo.now(%(now)s)
  returning d.event_day, d.id, d.notification_event_id as event_id, d.project, d.last_error_code as code
), dead as (
  insert into relevo.dead_letters (event_day, delivery_id, event_id, project, error_code, died_at)
  select w.event_day, w.id, w.event_id, w.project, w.code, relevo.now(%(now)s) from doubted w
  on conflict (event_day, delivery_id) do update -- a stray one
     set event_id = excluded.event_id, project = excluded.project, error_code = excluded.error_code, died_at = excluded.died_at
), told as ( -- nobody has seen it yet
  update relevo.failed_attempts f set became = 'failed'
    from doubted w
   where f.event_day = w.event_day and f.delivery_id = w.id and f.became = 'invalid' and f.at = relevo.now(%(now)s)
), progress as materialized (
  select relevo.move_counts(array_agg(w.event_id), array_agg('invalid'::text), array_agg('failed'::text)) from doubted w
)
select count(*)::int from doubted where (select count(*) from progress) > 0;

-- name: keep_tickets
-- Keeps tickets of pushes whose answers cannot be written for now: whoever ends the claim, or claims them next, finds that they were sent.
insert into relevo.late_tickets (event_day, delivery_id, ticket_id, claim_token, recorded_at)
select u.event_day, u.id, u.ticket_id, %(token)s, relevo.now(%(now)s)
  from unnest(%(days)s::date[], %(ids)s::bigint[], %(tickets)s::text[]) as u(event_day, id, ticket_id)
on conflict do nothing;

-- name: keep_late_tickets
-- Keeps tickets that arrived after their claim was lost, for whoever owns the delivery's chunk or claim; only what was given up because the
-- answer was not seen, as unknown or, after its last attempt, as failed, is closed with its ticket at once: nobody owns it, or, as a redrive
-- does, who locks its dead letter.
with unsealed as materialized ( -- a month on its way to the archive is not written to any more
  select relevo.hold_open(array(select distinct u.day from unnest(%(days)s::date[]) as u(day))) as days
), told as materialized (
  select u.event_day, u.id, u.ticket_id, u.token_version
    from unnest(%(days)s::date[], %(ids)s::bigint[], %(tickets)s::text[], %(versions)s::int[]) as u(event_day, id, ticket_id, token_version)
   where u.ticket_id is not null and u.event_day = any ((select s.days from unsealed s)::date[])
   order by u.event_day, u.id
), dead as materialized (
  select l.event_day, l.delivery_id as id
    from told a
    cross join lateral (select l.event_day, l.delivery_id from relevo.dead_letters l
                         where l.event_day = a.event_day and l.delivery_id = a.id
                           for update) l
), late as materialized (
  select a.event_day, a.id, a.ticket_id, a.token_version, d.notification_event_id as event_id, d.status as former_status,
         d.status = 'unknown' or (d.status = 'failed' and d.last_error_code = 'answer_not_seen') as closable
    from told a
    left join lateral (select d.status, d.last_error_code, d.provider_ticket_id, d.notification_event_id
                         from relevo.notification_deliveries d
                        where d.event_day = a.event_day and d.id = a.id
                          for no key update) d on true
   where d.provider_ticket_id is distinct from a.ticket_id and (select count(*) from dead) >= 0
), buried as (
  delete from relevo.dead_letters l using late a where a.closable and l.event_day = any (array[a.event_day]) and l.delivery_id = a.id
), closed as (
  update relevo.notification_deliveries d
     set status = 'sent', provider_ticket_id = l.ticket_id, token_version = l.token_version, completed_at = null,
         last_attempt_at = relevo.now(%(now)s), updated_at = relevo.now(%(now)s),
         last_error_code = null, last_error_message = null
    from late l
   where d.event_day = any (array[l.event_day]) and d.id = l.id and l.closable
  returning d.event_day, d.id, l.event_id, l.former_status, d.project, d.installation_id, d.provider_ticket_id, d.token_version, d.attempt_count
), awaited as (
  insert into relevo.awaited_receipts (project, look_at, sent_at, days, ids, installations, tickets, versions, attempts)
  select c.project, relevo.now(%(now)s) + %(receipt_ms)s * interval '1 millisecond', relevo.now(%(now)s),
         array_agg(c.event_day), array_agg(c.id), array_agg(c.installation_id), array_agg(c.provider_ticket_id), array_agg(c.token_version),
         array_agg(c.attempt_count)
    from (select c.*, (row_number() over () - 1) / 100 as piece from closed c) c
   group by c.project, c.piece
), tallied as (
  insert into relevo.push_tallies (project, at, sent, answers, unregistered)
  select c.project, relevo.now(%(now)s), count(*), count(*), 0 from closed c group by c.project
), progress as materialized (
  select relevo.move_counts(array_agg(c.event_id), array_agg(c.former_status), array_agg('sent'::text)) from closed c
), kept as (
  insert into relevo.late_tickets (event_day, delivery_id, ticket_id, claim_token, recorded_at)
  select l.event_day, l.id, l.ticket_id, %(token)s, relevo.now(%(now)s)
    from late l
   where (l.event_day, l.id) not in (select c.event_day, c.id from closed c)
  on conflict do nothing
  returning delivery_id
), used as (
  delete from relevo.late_tickets l using closed c where l.event_day = c.event_day and l.delivery_id = c.id and l.ticket_id = c.provider_ticket_id
)
select (select count(*) from closed)::int as closed, (select count(*) from kept)::int as kept,
       relevo.note_first_sent(array(select distinct c.event_id from closed c), %(now)s) as noted
 where (select count(*) from progress) > 0;

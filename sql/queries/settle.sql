-- Answers are written under the lock of its claim, which is a statement of its own, so that the next one sees the claim as it is
-- then. A delivery is the claim's exactly while its id stands in the claim; what is settled is taken out in the same transaction, so that
-- to settle the same again writes nothing.
--
-- One lock order for all who write: event (to sweep, end or delete it); chunk, claim, awaited receipts or dead letter; delivery by (event_day, id),
-- with what is told of its failures; tender; installation; project. An event that is only told of its first push is passed by if somebody holds
-- it. So is a phone whose token a worker disables or moves to another project: no worker waits for an app's transaction with a project locked.
-- Ingest locks a tender before the events that it ends, so whoever holds an event asks for no tender. Settle and reaper, journal and reaper
-- are serialised by the claim's row; cancel, redrive and seal own the chunk, the dead letter or the month they take away; a late ticket and a
-- send are serialised by nothing: one that is committed before the journal looks is seen.
--
-- Rows are written by a key whose first part is any of an array of one: joined by plain equality, a plan may begin with the whole table, which is
-- as cheap while it is small, and connections keep their plans.

-- name: settle_sent
-- Settles what was sent of requests, under the lock of their claim; null if the general statement has to.
select relevo.settle_sent(
  claim => %(token)s, of_project => %(project)s, sent_ids => %(ids)s::bigint[], unsent => %(unsent)s::int[], tickets => %(tickets)s::text[],
  of_installations => %(installations)s::uuid[], versions => %(versions)s::int[], of_attempts => %(attempts)s::smallint[],
  request_ids => %(request_ids)s::uuid[], firsts => %(firsts)s::int[], lasts => %(lasts)s::int[], events => %(events)s::bigint[],
  formers => %(formers)s::text[], counts => %(counts)s::int[], receipt_ms => %(receipt_ms)s, finish => %(finish)s, given_at => %(now)s);

-- name: settle_deliveries
-- Writes what was answered of deliveries that the claim holds; returns how many became what.
select * from relevo.settle_deliveries(
  claim => %(token)s, of_days => %(days)s::date[], of_ids => %(ids)s::bigint[], kinds => %(kinds)s::int[], tickets => %(tickets)s::text[],
  versions => %(versions)s::int[], sort_statuses => %(statuses)s::text[], sort_spent => %(spent)s::int[], sort_paced => %(paced)s::boolean[],
  sort_codes => %(codes)s::text[], sort_messages => %(messages)s::text[], sort_floors_ms => %(floors_ms)s::bigint[],
  sort_projects => %(projects)s::text[], sort_not_befores => %(not_befores)s::timestamptz[], sort_types => %(types)s::text[],
  sort_formers => %(formers)s::text[], sort_requests => %(in_requests)s::uuid[], request_ids => %(request_ids)s::uuid[],
  request_outcomes => %(request_outcomes)s::text[], most_attempts => %(max_attempts)s, base_ms => %(retry_base_ms)s, max_ms => %(retry_max_ms)s,
  jitter_ms => %(retry_jitter_ms)s, receipt_ms => %(receipt_ms)s, finish => %(finish)s, given_at => %(now)s);

-- name: disable_tokens
-- Disables tokens that the push service calls gone, each only if it is still the one that was asked about. The project's row is locked by now, so
-- a phone that somebody else has locked is skipped: the next answer for its token disables it.
with gone as materialized (
  select n.installation_id, u.token_version, u.reason
    from unnest(%(installations)s::uuid[], %(versions)s::int[], %(reasons)s::text[]) as u(installation_id, token_version, reason)
    cross join lateral (select n.installation_id from relevo.device_installations n
                         where n.installation_id = u.installation_id and n.token_version = u.token_version and n.invalidated_at is null
                           for no key update skip locked) n
)
update relevo.device_installations i
   set invalidated_at = relevo.now(%(now)s), invalid_reason = g.reason,
       updated_at = relevo.now(%(now)s)
  from gone g
 where i.installation_id = any (array[g.installation_id]) and i.token_version = g.token_version
   and i.invalidated_at is null;

-- name: fail_doubted
-- Makes dead letters of what this transaction wrote down as invalid while the brake doubts that so many phones are gone; returns how many. They
-- stay counted as unregistered, which is what the brake judges by.
with meant as materialized (
  select u.event_day, u.id from unnest(%(days)s::date[], %(ids)s::bigint[]) as u(event_day, id) order by u.event_day, u.id
), doubted as (
  update relevo.notification_deliveries d set status = 'failed'
    from meant a
   where d.event_day = any (array[a.event_day]) and d.id = a.id and d.status = 'invalid' and d.completed_at = relevo.now(%(now)s)
  returning d.*
), told as ( -- nobody has seen it yet
  update relevo.failed_attempts f set became = 'failed'
    from doubted w
   where f.event_day = w.event_day and f.delivery_id = w.id and f.became = 'invalid' and f.at = relevo.now(%(now)s)
)
select count(*)::int as doubted,
       relevo.record_outcomes(array_agg(row(w.event_day, w.id, w.notification_event_id, w.project, w.installation_id, w.provider_ticket_id,
                                            w.token_version, w.attempt_count, 'invalid', w.status, null, false, false, w.last_error_code,
                                            null, null, null)::relevo.written_delivery), 'dispatch', null, relevo.now(%(now)s))
  from doubted w;

-- name: keep_tickets
-- Keeps the tickets of pushes whose answers cannot be written for now, so that the next holder of the deliveries finds that they were sent. It
-- keeps no ticket of a claim that journalled nothing here, neither an unanswered request nor the given ones, which may have been given up. Such a
-- claim comes from before a restored backup, and the numbers of its deliveries belong to other deliveries now.
insert into relevo.late_tickets (event_day, delivery_id, ticket_id, claim_token, recorded_at)
select u.event_day, u.id, u.ticket_id, %(token)s, relevo.now(%(now)s)
  from unnest(%(days)s::date[], %(ids)s::bigint[], %(tickets)s::text[]) as u(event_day, id, ticket_id)
 where exists (select from relevo.push_requests r where r.claim_token = %(token)s and r.answered_at is null)
    or exists (select from relevo.push_requests r
                where r.request_day = any (array(select (relevo.now(%(now)s) at time zone 'UTC')::date - n from generate_series(0, 7) n))
                  and r.id = any (%(request_ids)s::uuid[]) and r.claim_token = %(token)s)
on conflict do nothing;

-- name: keep_late_tickets
-- Keeps tickets that arrived after their claim was lost, or closes their deliveries with them; returns how many were closed, and how many kept.
select k.closed, k.kept
  from relevo.keep_late_tickets(%(token)s, %(request_ids)s::uuid[], %(days)s::date[], %(ids)s::bigint[], %(tickets)s::text[], %(versions)s::int[], %(receipt_ms)s, %(now)s) k;

-- name: split_unsent
-- Moves deliveries that were definitely not sent, though others of their request were, to a request of their own in the journal; under the lock
-- of their claim, so that a reaper sees them in the one or in the other.
with unsent as (
  select u.request_id, array_agg(u.id) as ids from unnest(%(in_requests)s::uuid[], %(ids)s::bigint[]) as u(request_id, id) group by u.request_id
), request as materialized (
  select r.*, x.ids as unsent_ids
    from relevo.push_requests r join unsent x on x.request_id = r.id
   where r.claim_token = %(token)s and r.answered_at is null and not r.ids <@ x.ids
     for no key update of r
), apart as (
  insert into relevo.push_requests (request_day, id, claim_token, worker_id, project, journalled_at, answered_at, outcome, days, ids)
  select q.request_day, gen_random_uuid(), q.claim_token, q.worker_id, q.project, q.journalled_at, relevo.now(%(now)s), 'not_taken', p.days, p.ids
    from request q
    cross join lateral (select array_agg(u.event_day) as days, array_agg(u.id) as ids
                          from unnest(q.days, q.ids) as u(event_day, id) where u.id = any (q.unsent_ids)) p
   where p.ids is not null
)
update relevo.push_requests r
   set days = p.days, ids = p.ids
  from request q
  cross join lateral (select array_agg(u.event_day) as days, array_agg(u.id) as ids
                        from unnest(q.days, q.ids) as u(event_day, id) where u.id <> all (q.unsent_ids)) p
 where r.request_day = q.request_day and r.id = q.id;

-- name: reopen_unsent
-- Notes of deliveries whose claim was lost that their requests were certainly not taken, and opens again what was given up because of them.
with told as materialized (
  select u.event_day, u.id, u.request_id from unnest(%(days)s::date[], %(ids)s::bigint[], %(in_requests)s::uuid[]) as u(event_day, id, request_id)
), request as materialized (
  select r.request_day, r.id, r.ids, r.journalled_at from relevo.push_requests r
   where r.claim_token = %(token)s and r.id in (select t.request_id from told t)
), noted as (
  update relevo.push_requests r set answered_at = relevo.now(%(now)s), outcome = 'not_taken'
    from request q
   where r.request_day = q.request_day and r.id = q.id and r.answered_at is null and q.ids <@ array(select t.id from told t)
), meant as (
  select array_agg(t.event_day) as days, array_agg(t.id) as ids, array_agg(q.journalled_at) as journalled
    from told t join request q on q.id = t.request_id
)
select o.event_day, o.id, o.due_at from meant m cross join relevo.open_unsent(m.days, m.ids, m.journalled, %(now)s) o;

-- name: list_returned
-- Lists the phones that have another token than the one that is gone, and those that confirmed it after the push service last knew it as gone.
select i.installation_id, u.token_version, i.has_moved
  from unnest(%(installations)s::uuid[], %(versions)s::int[], %(gone_at)s::timestamptz[]) as u(installation_id, token_version, gone_at)
  cross join lateral (select i.installation_id, i.token_version <> u.token_version as has_moved from relevo.device_installations i
                       where i.installation_id = u.installation_id
                         and (i.token_version <> u.token_version and relevo.may_receive(i)
                              or coalesce(i.token_confirmed_at, i.registered_at) > u.gone_at)
                      offset 0) i;

-- name: note_silent
-- Notes which pushes went without a sound because of quiet hours.
insert into relevo.silent_pushes (event_id, delivery_id, at)
select u.event_id, u.id, relevo.now(%(now)s) from unnest(%(events)s::bigint[], %(ids)s::bigint[]) as u(event_id, id)
on conflict do nothing;

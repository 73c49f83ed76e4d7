-- Every open delivery stands in exactly one chunk or claim, every sent one in awaited receipts, every failed one among the dead letters.
-- Whatever moves a delivery from one to another commits in one piece, so one statement, which sees one moment, never takes work
-- under way for a fault. Each statement reads a piece, from a key on.
--
-- A repair looks again under locks. A row that stands nowhere is given a place by nobody who does not write the row, so its lock is enough;
-- of a chunk or of awaited receipts, which are locked before deliveries, nothing is taken away while it is locked. Repairs are made one at a
-- time (lock_repairs), and what is committed while a lock is waited for is seen, because the look is a statement of its own.

-- name: list_open_months
-- Lists the months of deliveries that are not sealed.
select p.month
  from (select to_date(right(c.relname, 7), 'YYYY_MM') as month
          from pg_inherits i join pg_class c on c.oid = i.inhrelid
         where i.inhparent = 'relevo.notification_deliveries'::regclass
           and c.relname ~ E'^notification_deliveries_\\d{4}_(0[1-9]|1[0-2])$') p
 where not exists (select from relevo.archive_exports x where x.entity = 'notification_deliveries' and x.month = p.month)
 order by p.month;

-- name: look_at_deliveries
-- Names those of a piece of a month's deliveries that do not stand where they must, and where the piece ends; what changed a moment ago, or
-- is left of a deleted event, is not judged. Open ones must stand in one chunk or claim (`placed`), sent ones be awaited once (`awaited`), failed
-- ones have a dead letter.
with piece as materialized (
  select d.event_day, d.id, d.notification_event_id as event_id, d.status,
         d.updated_at < relevo.now(%(now)s) - %(young_ms)s * interval '1 millisecond'
           and not exists (select from relevo.deleted_events x where x.event_id = d.notification_event_id) as is_judged
    from relevo.notification_deliveries d
   where d.event_day >= %(month)s::date and d.event_day < (%(month)s::date + interval '1 month')::date
     and (d.event_day, d.id) > (%(after_day)s::date, %(after_id)s::bigint)
   order by d.event_day, d.id
   limit %(limit)s
), open as materialized (
  select * from piece p where p.status in ('pending', 'retryable') and p.is_judged
), placed as materialized ( -- counted, not joined: no estimate can make this batch x queue comparisons
  select x.id, max(x.event_day) as event_day, sum(x.place) as places, array_agg(x.chunk) filter (where x.chunk is not null) as chunks
    from (select o.id, o.event_day, 0 as place, null::bigint as chunk from open o
          union all
          select u.id, null, 1, q.id
            from relevo.due_chunks q cross join lateral unnest(q.ids) as u(id)
           where q.event_id = any (array(select distinct o.event_id from open o) || 0::bigint) -- 0: of several events
             and u.id >= (select min(o.id) from open o) and u.id <= (select max(o.id) from open o)
          union all
          select u.id, null, 1, null
            from relevo.claims c cross join lateral unnest(c.ids) as u(id)
           where c.cycle <> 'receipt') x
   group by x.id
  having max(x.event_day) is not null
), sent as materialized (
  select * from piece p where p.status = 'sent' and p.is_judged
), awaited as materialized (
  select x.id, max(x.event_day) as event_day, sum(x.place) as places
    from (select s.id, s.event_day, 0 as place from sent s
          union all
          select u.id, null, 1
            from relevo.awaited_receipts r cross join lateral unnest(r.ids) as u(id)
           where u.id >= (select min(s.id) from sent s) and u.id <= (select max(s.id) from sent s)) x
   group by x.id
  having max(x.event_day) is not null
), found as (
  select 'not_queued' as kind, p.event_day, p.id, null::bigint[] as places from placed p where p.places = 0
  union all
  select 'queued_twice', p.event_day, p.id, p.chunks from placed p where p.places > 1
  union all
  select 'not_awaited', a.event_day, a.id, null from awaited a where a.places = 0
  union all
  select 'no_dead_letter', p.event_day, p.id, null
    from piece p
    left join lateral (select l.delivery_id from relevo.dead_letters l
                        where l.event_day = p.event_day and l.delivery_id = p.id
                       offset 0) l on true
   where p.status = 'failed' and p.is_judged and l.delivery_id is null
)
(select f.kind, f.event_day, f.id, f.places from found f order by f.kind, f.event_day, f.id)
union all
(select 'end', p.event_day, p.id, array[count(*) over ()] from piece p order by p.event_day desc, p.id desc limit 1);

-- name: look_at_chunks
-- Names what stands in a piece of the queue although it is gone or not to be sent any more, with its chunk, and where the piece ends. A delivery
-- that was deleted with its event stays in a chunk of several events until the chunk is claimed.
with piece as materialized (
  select q.id, q.event_day, q.ids, q.events from relevo.due_chunks q where q.id > %(after_id)s order by q.id limit %(limit)s
)
select 'queued_but_ended' as kind, p.event_day, u.id, array[p.id] as places
  from piece p
  cross join lateral unnest(p.ids, p.events) as u(id, event_id)
  left join lateral (select d.status from relevo.notification_deliveries d where d.event_day = p.event_day and d.id = u.id offset 0) d on true
 where d.status not in ('pending', 'retryable')
    or d.status is null and (u.event_id is null or exists (select from relevo.notification_events e where e.id = u.event_id))
union all
select 'end', null, max(p.id), array[count(*)] from piece p having count(*) > 0;

-- name: look_at_awaited
-- Names what stands in a piece of the awaited receipts although it is gone or waits for none, with its row, and where the piece ends.
with piece as materialized (
  select r.id, r.days, r.ids from relevo.awaited_receipts r where r.id > %(after_id)s order by r.id limit %(limit)s
)
select 'awaited_but_ended' as kind, u.event_day, u.id, array[p.id] as places
  from piece p
  cross join lateral unnest(p.days, p.ids) as u(event_day, id)
  left join lateral (select d.status from relevo.notification_deliveries d where d.event_day = u.event_day and d.id = u.id offset 0) d on true
 where d.status is distinct from 'sent'
union all
select 'end', null, max(p.id), array[count(*)] from piece p having count(*) > 0;

-- name: look_at_dead_letters
-- Names those of a piece of the dead letters whose delivery is gone or did not fail, and where the piece ends.
with piece as materialized (
  select l.event_day, l.delivery_id as id
    from relevo.dead_letters l
   where (l.event_day, l.delivery_id) > (%(after_day)s::date, %(after_id)s::bigint)
   order by l.event_day, l.delivery_id
   limit %(limit)s
)
select 'wrong_dead_letter' as kind, p.event_day, p.id, null::bigint[] as places
  from piece p
  left join lateral (select d.status from relevo.notification_deliveries d where d.event_day = p.event_day and d.id = p.id offset 0) d on true
 where d.status is distinct from 'failed'
union all
(select 'end', p.event_day, p.id, array[count(*) over ()] from piece p order by p.event_day desc, p.id desc limit 1);

-- name: look_at_counts
-- Names those of the next events, of months that are not sealed, whose counts differ from their deliveries, and how far the look went; what is
-- left of a deleted event is not judged.
with page as materialized (
  select e.id
    from relevo.notification_events e
   where e.id > %(after_id)s and e.event_day is not null
     and not exists (select from relevo.deleted_events x where x.event_id = e.id)
     and not exists (select from relevo.archive_exports x
                      where x.entity = 'notification_deliveries' and x.month = date_trunc('month', e.event_day)::date)
   order by e.id limit %(limit)s
)
select array(select distinct w.event_id from relevo.wrong_counts(array(select p.id from page p)) w order by 1) as wrong,
       (select max(p.id) from page p) as upto;

-- name: mend_counts
-- Adds to the counts of some events what they lack of their deliveries, and returns how many events.
with mended as (
  insert into relevo.event_progress_deltas (event_id, status, deliveries)
  select w.event_id, w.status, w.missing::int from relevo.wrong_counts(%(ids)s::bigint[]) w
  returning event_id
)
select count(distinct m.event_id)::int from mended m;

-- name: look_at_totals
-- Returns whether the sums of all pushes per status differ from those of the events but for news.
select exists (select from (select p.status, p.deliveries as n from relevo.event_progress p
                            union all
                            select p.status, -p.deliveries
                              from relevo.notification_events e join relevo.event_progress p on p.event_id = e.id
                             where e.event_type = 'relevo.news'
                            union all
                            select d.status, -d.deliveries from relevo.delivery_counts d) c
                group by c.status having sum(c.n) <> 0);

-- name: mend_totals
-- Adds to the sums of all pushes per status what they lack of those of the events but for news.
insert into relevo.delivery_counts (status, deliveries)
select c.status, sum(c.n)
  from (select p.status, p.deliveries as n from relevo.event_progress p
        union all
        select p.status, -p.deliveries
          from relevo.notification_events e join relevo.event_progress p on p.event_id = e.id
         where e.event_type = 'relevo.news'
        union all
        select d.status, -d.deliveries from relevo.delivery_counts d) c
 group by c.status having sum(c.n) <> 0;

-- name: list_old_workers
-- Lists the workers that live and are of a release before 0.3, none of which works on this schema.
select w.worker_id, w.hostname, w.pid, w.version
  from relevo.workers w
 where relevo.is_alive(w, %(now)s) and w.version ~ '^0[.][0-2]([.]|$)'
 order by w.worker_id;

-- name: lock_repairs
-- Lets one process repair at a time, until the end of its transaction.
select relevo.take_turn('repair');

-- name: lock_deliveries
-- Keeps everybody else from some deliveries, in the order of every writer, and their months from being sealed; passes by sealed ones.
with unsealed as materialized (
  select relevo.hold_open(array(select distinct u.day from unnest(%(days)s::date[]) as u(day))) as days
)
select d.event_day, d.id
  from (select u.event_day, u.id from unnest(%(days)s::date[], %(ids)s::bigint[]) as u(event_day, id)
         where u.event_day = any ((select s.days from unsealed s)::date[])
         order by u.event_day, u.id) k
  cross join lateral (select d.event_day, d.id from relevo.notification_deliveries d
                       where d.event_day = k.event_day and d.id = k.id for no key update) d;

-- name: queue_lost
-- Queues those of some locked deliveries that are open and stand nowhere, due at once; one that is sent at most once, and of which a request
-- was begun whose answer nobody saw, ends as unknown instead.
with open as materialized (
  select d.event_day, d.id, d.notification_event_id as event_id, d.status,
         coalesce((select e.at_most_once from relevo.notification_events e where e.id = d.notification_event_id), d.at_most_once) as at_most_once
    from unnest(%(days)s::date[], %(ids)s::bigint[]) as k(event_day, id)
    cross join lateral (select * from relevo.notification_deliveries d where d.event_day = k.event_day and d.id = k.id offset 0) d
   where d.status in ('pending', 'retryable')
), lost as materialized (
  select x.id, max(x.event_day) as event_day, max(x.event_id) as event_id, max(x.status) as status, bool_or(x.at_most_once) as at_most_once
    from (select o.id, o.event_day, o.event_id, o.status, o.at_most_once, 0 as place from open o
          union all
          select u.id, null, null, null, null, 1
            from relevo.due_chunks q cross join lateral unnest(q.ids) as u(id)
           where q.event_id = any (array(select distinct o.event_id from open o) || 0::bigint) -- 0: of several events
             and u.id >= (select min(o.id) from open o) and u.id <= (select max(o.id) from open o)
          union all
          select u.id, null, null, null, null, 1
            from relevo.claims c cross join lateral unnest(c.ids) as u(id)
           where c.cycle <> 'receipt') x
   group by x.id
  having sum(x.place) = 0
), unseen as materialized (
  select l.event_day, l.id, l.event_id, l.status, max(r.journalled_at) as journalled_at
    from relevo.push_requests r
    cross join lateral unnest(r.days, r.ids) as u(event_day, id)
    join lost l on l.event_day = u.event_day and l.id = u.id and l.at_most_once
   where r.answered_at is null and r.request_day >= (select min(o.event_day) from lost o where o.at_most_once)
   group by l.event_day, l.id, l.event_id, l.status
), ended as (
  update relevo.notification_deliveries d
     set status = 'unknown', attempt_count = d.attempt_count + 1, last_attempt_at = u.journalled_at,
         completed_at = relevo.now(%(now)s), updated_at = relevo.now(%(now)s),
         last_error_code = 'answer_not_seen', last_error_message = 'A request was started and its answer was not seen.'
    from unseen u
   where d.event_day = u.event_day and d.id = u.id
  returning d.id
), progress as materialized (
  select relevo.move_counts(array_agg(u.event_id), array_agg(u.status), array_agg('unknown'::text)) from unseen u
)
select coalesce(relevo.queue_deliveries(array_agg(l.event_day), array_agg(l.id), array_agg(relevo.now(%(now)s))), 0)
       + (select count(*)::int from ended)
  from lost l
 where (select count(*) from progress) > 0 and not exists (select from unseen u where u.event_day = l.event_day and u.id = l.id);

-- name: await_lost
-- Has the receipts of those of some locked deliveries asked for that are sent and awaited by nobody.
with sent as materialized (
  select d.*, coalesce(d.last_attempt_at, d.updated_at) as sent_at
    from unnest(%(days)s::date[], %(ids)s::bigint[]) as k(event_day, id)
    cross join lateral (select * from relevo.notification_deliveries d where d.event_day = k.event_day and d.id = k.id offset 0) d
   where d.status = 'sent'
), unawaited as materialized (
  select x.id
    from (select n.id, 0 as place from sent n
          union all
          select u.id, 1 from relevo.awaited_receipts r cross join lateral unnest(r.ids) as u(id)) x
   group by x.id
  having sum(x.place) = 0
), lost as materialized (
  select s.*, (row_number() over (partition by s.project, date_trunc('minute', s.sent_at) order by s.event_day, s.id) - 1) / 100 as piece
    from sent s where s.id = any (array(select n.id from unawaited n))
), made as (
  insert into relevo.awaited_receipts (project, look_at, sent_at, days, ids, installations, tickets, versions, attempts)
  select l.project, relevo.now(%(now)s), max(l.sent_at), array_agg(l.event_day), array_agg(l.id), array_agg(l.installation_id),
         array_agg(l.provider_ticket_id), array_agg(l.token_version), array_agg(l.attempt_count)
    from lost l
   group by l.project, date_trunc('minute', l.sent_at), l.piece
)
select count(*)::int from lost;

-- name: add_dead_letters
-- Adds those of some locked deliveries that failed and are not among the dead letters.
with failed as materialized (
  select d.*
    from unnest(%(days)s::date[], %(ids)s::bigint[]) as k(event_day, id)
    cross join lateral (select * from relevo.notification_deliveries d where d.event_day = k.event_day and d.id = k.id offset 0) d
   where d.status = 'failed' and not exists (select from relevo.dead_letters l where l.event_day = d.event_day and l.delivery_id = d.id)
), made as (
  insert into relevo.dead_letters (event_day, delivery_id, event_id, project, error_code, died_at)
  select f.event_day, f.id, f.notification_event_id, f.project, f.last_error_code, f.completed_at from failed f
)
select count(*)::int from failed;

-- name: lock_dead_letters
-- Keeps a redrive from some dead letters.
select l.event_day, l.delivery_id
  from relevo.dead_letters l
  join unnest(%(days)s::date[], %(ids)s::bigint[]) as k(event_day, id) on l.event_day = k.event_day and l.delivery_id = k.id
 order by l.event_day, l.delivery_id
   for update of l;

-- name: remove_dead_letters
-- Removes those of some locked dead letters whose delivery is gone or did not fail.
with wrong as (
  delete from relevo.dead_letters l
   using unnest(%(days)s::date[], %(ids)s::bigint[]) as k(event_day, id)
   where l.event_day = k.event_day and l.delivery_id = k.id
     and not exists (select from relevo.notification_deliveries d where d.event_day = k.event_day and d.id = k.id and d.status = 'failed')
  returning l.delivery_id
)
select count(*)::int from wrong;

-- name: lock_chunks
-- Keeps claims and cancellations from some chunks.
select q.id from relevo.due_chunks q where q.id = any (%(places)s::bigint[]) order by q.id for update;

-- name: clean_chunks
-- Takes out of some locked chunks what is gone, not to be sent any more, held by a claim, or queued in an earlier place.
with standing as materialized (
  select x.*, row_number() over (partition by x.id order by x.chunk_id nulls first, x.place) as turn
    from (select q.id as chunk_id, q.event_day, u.id, u.place
            from relevo.due_chunks q
            cross join lateral unnest(q.ids) with ordinality as u(id, place)
           where q.event_id = any (0::bigint || array(select distinct e.id from relevo.due_chunks o cross join lateral unnest(coalesce(o.events, array[o.event_id])) as e(id)
                                                       where o.id = any (%(ids)s::bigint[])))
          union all
          select null, null, u.id, null from relevo.claims c cross join lateral unnest(c.ids) as u(id) where c.cycle <> 'receipt') x
), wrong as materialized (
  select s.chunk_id, array_agg(s.place) as places
    from standing s
    left join lateral (select d.status from relevo.notification_deliveries d where d.event_day = s.event_day and d.id = s.id offset 0) d on true
   where s.chunk_id = any (%(ids)s::bigint[]) and (s.turn > 1 or d.status is null or d.status not in ('pending', 'retryable'))
   group by s.chunk_id
), taken as (
  delete from relevo.due_chunks q using wrong w where q.id = w.chunk_id returning q as chunk, w.places
), put_back as materialized (
  select relevo.put_back(relevo.part_of_chunk(t.chunk, array(
           select u.place from generate_series(1, cardinality((t.chunk).ids)) as u(place) where u.place <> all (t.places) order by u.place)))
    from taken t
)
select coalesce(sum(cardinality(w.places)), 0)::int from wrong w where (select count(*) from put_back) >= 0;

-- name: lock_awaited
-- Keeps claims from some awaited receipts that none has.
select r.id from relevo.awaited_receipts r where r.id = any (%(places)s::bigint[]) and r.claim_token is null order by r.id for update;

-- name: clean_awaited
-- Takes out of some locked awaited receipts what is gone or waits for none.
with wrong as materialized (
  select r.id as row_id, array_agg(u.place) as places
    from relevo.awaited_receipts r
    cross join lateral unnest(r.days, r.ids) with ordinality as u(event_day, id, place)
    left join lateral (select d.status from relevo.notification_deliveries d where d.event_day = u.event_day and d.id = u.id offset 0) d on true
   where r.id = any (%(ids)s::bigint[]) and d.status is distinct from 'sent'
   group by r.id
), taken as (
  delete from relevo.awaited_receipts r using wrong w where r.id = w.row_id returning r.*, w.places
), put_back as (
  insert into relevo.awaited_receipts (project, look_at, sent_at, days, ids, installations, tickets, versions, attempts)
  select t.project, t.look_at, t.sent_at, array_agg(u.event_day), array_agg(u.id), array_agg(u.installation_id), array_agg(u.ticket),
         array_agg(u.version), array_agg(u.attempt)
    from taken t
    cross join lateral unnest(t.days, t.ids, t.installations, t.tickets, t.versions, t.attempts) with ordinality
      as u(event_day, id, installation_id, ticket, version, attempt, place)
   where u.place <> all (t.places)
   group by t.id, t.project, t.look_at, t.sent_at
)
select coalesce(sum(cardinality(w.places)), 0)::int from wrong w;

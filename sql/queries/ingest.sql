-- name: read_source
-- Reads how far a source was read and whether its first pass is over.
select coalesce(s.cursor, '{}') as cursor, s.seeded_at
  from (select 1) one
  left join relevo.source_state s on s.source = %(source)s;

-- name: save_source
-- Moves a source's cursor together with what was read, and notes its answer.
insert into relevo.source_state as s (source, cursor, seeded_at, last_outcome, last_detail, last_asked_at, last_ok_at, problems, last_news_at)
values (%(source)s, %(cursor)s, case when not %(seeded)s then null when %(silent)s then relevo.now(%(now)s) else 'epoch' end, %(outcome)s, left(%(detail)s, 500), relevo.now(%(now)s),
        case when %(outcome)s in ('ok', 'unchanged') then relevo.now(%(now)s) end, %(problems)s::text[],
        case when %(news)s then relevo.now(%(now)s) end)
on conflict (source) do update
   set cursor = excluded.cursor, seeded_at = coalesce(s.seeded_at, excluded.seeded_at), last_outcome = excluded.last_outcome,
       last_news_at = coalesce(excluded.last_news_at, s.last_news_at),
       news_gap_s = case when not %(news)s or s.last_news_at is null then s.news_gap_s
                         else coalesce(0.8 * s.news_gap_s, 0.8 * extract(epoch from excluded.last_news_at - s.last_news_at)::float8)
                              + 0.2 * greatest(0, extract(epoch from excluded.last_news_at - s.last_news_at))::float8 end,
       problems = excluded.problems, last_detail = excluded.last_detail, last_asked_at = excluded.last_asked_at, last_ok_at = coalesce(excluded.last_ok_at, s.last_ok_at);

-- name: claim_registry
-- Claims the items nobody has seen before; what another source claimed first is not returned.
insert into relevo.licitacion_registry (namespace, external_id, source)
select u.namespace, u.external_id, %(source)s
  from unnest(%(namespaces)s::text[], %(external_ids)s::text[]) as u(namespace, external_id)
 order by u.namespace, u.external_id
on conflict (namespace, external_id) do nothing
returning namespace, external_id;

-- name: mark_announced
-- Marks the items that this source may announce: not announced yet, and new to the fleet since this source's first pass was over.
update relevo.licitacion_registry r
   set announced = true
  from unnest(%(namespaces)s::text[], %(external_ids)s::text[]) as u(namespace, external_id)
 where r.namespace = u.namespace and r.external_id = u.external_id
   and not r.announced and (%(seeded_at)s::timestamptz is null or r.claimed_at > %(seeded_at)s)
returning r.namespace, r.external_id;

-- name: read_items
-- Reads and locks the stored items that a batch tells of. One order for all who lock them: items by their key, then their events. One that
-- was told with a date ahead of its time counts as told by now.
select l.id, l.namespace, l.external_id, l.nombre, l.fingerprint, l.descripcion, l.organismo, l.region, l.tipo, l.estado, l.monto,
       l.moneda, l.monto_label, l.rubros, l.rubro_scheme, l.publicada_at, l.cierra_at, l.url,
       case when l.as_of > relevo.now(%(now)s) then relevo.now(%(now)s) else l.as_of end as as_of, l.announces,
       coalesce(l.withdrawn, l.estado in ('Revocada', 'Suspendida'), false) as withdrawn
  from relevo.licitaciones l
  join unnest(%(namespaces)s::text[], %(external_ids)s::text[]) as u(namespace, external_id)
    on l.namespace = u.namespace and l.external_id = u.external_id
 order by l.namespace, l.external_id
   for update of l;

-- name: save_items
-- Writes items, new or merged; what did not change is not touched.
insert into relevo.licitaciones as l (namespace, external_id, nombre, fingerprint, descripcion, organismo, region, tipo, estado, monto,
                                      moneda, monto_label, rubros, rubro_scheme, publicada_at, cierra_at, url, as_of, announces,
                                      withdrawn, sources)
select i.namespace, i.external_id, i.nombre, i.fingerprint, i.descripcion, i.organismo, i.region, i.tipo, i.estado, i.monto,
       i.moneda, i.monto_label, coalesce(i.rubros, '{}'), i.rubro_scheme, i.publicada_at, i.cierra_at, i.url, i.as_of, i.announces,
       i.withdrawn, array[%(source)s::text]
  from jsonb_to_recordset(%(items)s) as i(namespace text, external_id text, nombre text, fingerprint text, descripcion text,
         organismo text, region text, tipo text, estado text, monto numeric, moneda text, monto_label text, rubros text[],
         rubro_scheme text, publicada_at timestamptz, cierra_at timestamptz, url text, as_of timestamptz, announces boolean,
         withdrawn boolean)
on conflict (namespace, external_id) do update
   set nombre = excluded.nombre, fingerprint = excluded.fingerprint, descripcion = excluded.descripcion, organismo = excluded.organismo,
       region = excluded.region, tipo = excluded.tipo, estado = excluded.estado, monto = excluded.monto, moneda = excluded.moneda,
       monto_label = excluded.monto_label, rubros = excluded.rubros, rubro_scheme = excluded.rubro_scheme,
       publicada_at = excluded.publicada_at, cierra_at = excluded.cierra_at, url = excluded.url, as_of = excluded.as_of,
       announces = excluded.announces, withdrawn = excluded.withdrawn,
       sources = case when l.sources @> excluded.sources then l.sources else l.sources || excluded.sources end, updated_at = now()
 where (l.nombre, l.fingerprint, l.descripcion, l.organismo, l.region, l.tipo, l.estado, l.monto, l.moneda, l.monto_label, l.rubros,
        l.rubro_scheme, l.publicada_at, l.cierra_at, l.url, l.as_of, l.announces, l.withdrawn)
       is distinct from
       (excluded.nombre, excluded.fingerprint, excluded.descripcion, excluded.organismo, excluded.region, excluded.tipo, excluded.estado,
        excluded.monto, excluded.moneda, excluded.monto_label, excluded.rubros, excluded.rubro_scheme, excluded.publicada_at,
        excluded.cierra_at, excluded.url, excluded.as_of, excluded.announces, excluded.withdrawn)
    or not l.sources @> excluded.sources
returning l.id, l.namespace, l.external_id;

-- name: enqueue_events
-- Enqueues the events of new items through the function that apps call.
select e.event_id, e.created from relevo.enqueue_many(%(events)s) e;

-- name: refresh_events
-- Gives events that have not begun to fan out what became known of their items since.
update relevo.notification_events e
   set title = i.title, body = i.body, match_rubros = coalesce(i.rubros, '{}'), match_region = relevo.region_key(i.region),
       match_tipo = i.tipo, match_monto = i.monto, match_moneda = i.moneda, match_words = relevo.words(i.text), updated_at = now()
  from jsonb_to_recordset(%(events)s) as i(licitacion_id bigint, title text, body text, rubros text[], region text, tipo text,
         monto numeric, moneda text, text text)
 where e.licitacion_id = i.licitacion_id and e.event_type = %(event_type)s and e.state in ('waiting', 'held');

-- name: move_deadlines
-- Lets the deadline of an event follow its tender as long as anything of it may be sent, however far it was fanned out.
update relevo.notification_events e
   set deadline_at = greatest(i.deadline_at, e.scheduled_at + interval '1 millisecond'), updated_at = now()
  from jsonb_to_recordset(%(events)s) as i(licitacion_id bigint, deadline_at timestamptz)
 where e.licitacion_id = i.licitacion_id and e.event_type = %(event_type)s and e.ended_at is null
   and i.deadline_at is not null and e.deadline_at is distinct from i.deadline_at;

-- name: cancel_closed
-- The saga's compensation: cancels the events of items that are no longer open, each with its reason, and says which.
select e.id
  from unnest(%(item_ids)s::bigint[], %(reasons)s::text[]) as c(item_id, reason)
  join relevo.notification_events e on e.licitacion_id = c.item_id
 where e.event_type = %(event_type)s and e.ended_at is null and relevo.cancel(e.id, c.reason);

-- name: find_cancelled
-- Finds the items all of whose events were cancelled because they were not open: how many those were, and which.
select e.licitacion_id, count(*)::int + 1 as number, array_agg(e.id order by e.id) as former
  from relevo.notification_events e
 where e.licitacion_id = any (%(item_ids)s::bigint[]) and e.event_type = %(event_type)s
 group by e.licitacion_id
having bool_and(e.state = 'cancelled' and e.end_reason = any (%(reasons)s::text[]));

-- name: follow_events
-- Notes which events an event follows: whoever got one of those is not told again.
insert into relevo.event_followers (event_id, former_event_id)
select e.id, f.id
  from relevo.notification_events e cross join unnest(%(former)s::bigint[]) as f(id)
 where e.event_type = %(event_type)s and e.event_key = %(key)s and e.project is null
on conflict do nothing;

-- name: known_fingerprints
-- Returns which items are stored already, and what was said of them.
select l.external_id, l.fingerprint from relevo.licitaciones l
 where l.namespace = %(namespace)s and l.external_id = any (%(external_ids)s::text[]);

-- name: keep_rejects
-- Keeps what could not be used, with its reason and place; trying again later is spaced out.
insert into relevo.ingest_rejects as r (source, place, external_id, reason, retry_at)
select %(source)s, u.place, u.external_id, u.reason, case when u.retry then relevo.now(%(now)s) + interval '10 minutes' end
  from unnest(%(places)s::text[], %(external_ids)s::text[], %(reasons)s::text[], %(retries)s::boolean[]) as u(place, external_id, reason, retry)
on conflict (source, md5(place)) do update
   set reason = excluded.reason, external_id = coalesce(excluded.external_id, r.external_id), resolved_at = null, updated_at = relevo.now(%(now)s),
       attempts = case when r.resolved_at is null then r.attempts + 1 else 1 end,
       retry_at = case when excluded.retry_at is not null and (r.resolved_at is not null or r.attempts < %(most_attempts)s)
                       then relevo.now(%(now)s) + least(interval '10 minutes' * 2 ^ least(r.attempts, 7), interval '12 hours') end;

-- name: resolve_rejects
-- Notes that earlier rejects are mended.
update relevo.ingest_rejects set resolved_at = relevo.now(%(now)s), retry_at = null, updated_at = relevo.now(%(now)s)
 where source = %(source)s and place = any (%(places)s::text[]) and resolved_at is null;

-- name: rejects_due
-- Lists a source's rejects that are due to be tried again.
select r.place, r.reason, r.external_id, true as retry from relevo.ingest_rejects r
 where r.source = %(source)s and r.resolved_at is null and r.retry_at <= relevo.now(%(now)s)
 order by r.retry_at
 limit %(limit)s;

-- name: take_turn
-- Takes the next turn of a source's quota for the whole fleet and counts it; returns the seconds to wait, or nothing if the day is spent or the wait too long.
-- A last turn that lies in the future says that the clock was set back: then nobody waits for what it was before.
insert into relevo.source_lanes as l (lane, day, requests, pace_ms, not_before, asked_at)
values (%(quota)s, (now() at time zone %(timezone)s)::date, 1, %(pace_ms)s::int, clock_timestamp() + %(pace_ms)s::int * interval '1 millisecond', clock_timestamp())
on conflict (lane) do update
   set requests = case when l.day = excluded.day then l.requests + 1 else 1 end, day = excluded.day, asked_at = excluded.asked_at,
       not_before = case when l.asked_at > clock_timestamp() + interval '1 second' then clock_timestamp()
                         else greatest(l.not_before, clock_timestamp()) end + l.pace_ms * interval '1 millisecond'
 where (l.day <> excluded.day or l.requests < %(daily_limit)s)
   and (l.not_before <= clock_timestamp() + %(patience_ms)s::int * interval '1 millisecond'
        or l.asked_at > clock_timestamp() + interval '1 second')
returning greatest(0, extract(epoch from l.not_before - l.pace_ms * interval '1 millisecond' - clock_timestamp()))::float8;

-- name: slow_down
-- Sets a quota's pace for the whole fleet and lets nobody ask before a pause is over.
update relevo.source_lanes
   set pace_ms = %(pace_ms)s, not_before = greatest(not_before, clock_timestamp() + %(pause_ms)s * interval '1 millisecond')
 where lane = %(quota)s;

-- name: read_pace
-- Reads a quota's present pace.
select l.pace_ms from relevo.source_lanes l where l.lane = %(quota)s;

-- name: read_quota
-- Returns how many of today's requests of a quota are spent, and for how many seconds nobody may ask.
select case when l.day = (now() at time zone %(timezone)s)::date then l.requests else 0 end,
       greatest(0, extract(epoch from l.not_before - clock_timestamp()))::float8
  from relevo.source_lanes l where l.lane = %(quota)s;

-- name: read_now
-- Reads the database's time, or the one that was given.
select relevo.now(%(now)s);

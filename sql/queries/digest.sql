-- name: pick_due_slot
-- Locks a slot of digests whose time has come, passing by those another replica is at and those this run has given up; none while the cycle is paused.
select s.id, concat_ws(' ', s.project, s.delivery, s.zone)
  from relevo.digest_slots s
 where s.closes_at <= relevo.now(%(now)s) and s.id <> all (%(given_up)s::int[])
   and not exists (select from relevo.cycle_state c where c.cycle = 'digest' and c.source = '' and c.paused_at is not null)
 order by s.closes_at, s.id
 limit 1
   for no key update skip locked;

-- name: close_digest_slice
-- Writes the digests of the next phones of a slot that this transaction has locked, and moves its cursor.
select c.is_last, c.phones, c.items
  from relevo.digest_slots s
  cross join lateral relevo.close_digest_slice(s, %(most)s::int, %(now)s::timestamptz) c
 where s.id = %(slot)s;

-- name: read_digests
-- Reads the content of some digests for some phones: how many events there are beside the listed ones, and which listed ones remain, the best
-- first. It leaves out events that ended, passed their deadline or were handled since, and events in a category that the phone or its owner does
-- not want now.
with told as materialized (
  select c.event_id, i.i, c.total - cardinality(c.offsets) as unlisted, o.place, c.event_id - o.before as told
    from unnest(%(events)s::bigint[], %(installations)s::uuid[]) as u(event_id, installation_id)
    cross join lateral (select i from relevo.device_installations i where i.installation_id = u.installation_id offset 0) i
    cross join lateral (select c.event_id, c.total, c.offsets from relevo.digest_contents c where c.event_id = u.event_id and c.seq = (i.i).seq offset 0) c
    cross join unnest(c.offsets) with ordinality as o(before, place)
), events as materialized (
  select e.id, e.e, relevo.category_rule((e.e).category) as rule
    from (select distinct t.told from told t) t
    cross join lateral (select e.id, e from relevo.notification_events e
                         where e.id = t.told and e.ended_at is null and (e.deadline_at > relevo.now(%(now)s)) is not false offset 0) e
)
select t.event_id, (t.i).installation_id, max(t.unlisted), array_agg(t.told order by t.place)
  from told t join events e on e.id = t.told
 where relevo.unwanted((t.i).opt_outs, (t.i).refused, (t.i).accepted, (e.e).category, e.rule) is null and not relevo.is_handled(e.e, t.i)
 group by t.event_id, (t.i).installation_id;

-- name: read_digested
-- Reads how events are called that digests name, in the languages they have.
select e.id, case when e.licitacion_id is not null and e.body <> '' then e.body else coalesce(nullif(e.title, ''), e.body) end, e.texts::text
  from unnest(%(events)s::bigint[]) as u(id)
  cross join lateral (select * from relevo.notification_events e where e.id = u.id offset 0) e;

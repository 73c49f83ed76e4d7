-- name: move_followers
-- Brings the next phones of a project whose time zone changed to the slots of their digests, passing by those that another replica is at.
select relevo.move_followers(m.project, %(most)s::int)
  from (select m.project from relevo.digest_moves m order by m.project limit 1 for update skip locked) m;

-- name: open_digests
-- Begins to close the slots of digests whose time has come, and numbers the window that they tell.
select relevo.open_digests(%(now)s::timestamptz);

-- name: pick_closing_slot
-- Locks a slot that closes, passing by those another replica is at and those this run has given up.
select s.project, s.delivery, s.zone
  from relevo.digest_slots s
 where s.upto_number is not null and concat_ws(' ', s.project, s.delivery, s.zone) <> all (%(given_up)s::text[])
 order by s.closes_at, s.project, s.delivery, s.zone
 limit 1
   for no key update skip locked;

-- name: close_digest_slice
-- Writes the digests of the next phones of a slot that this transaction has locked, and moves its cursor.
select c.is_last, c.phones, c.items
  from relevo.digest_slots s
  cross join lateral relevo.close_digest_slice(s, %(most)s::int, %(now)s::timestamptz) c
 where s.project = %(project)s and s.delivery = %(delivery)s and s.zone = %(zone)s;

-- name: read_digests
-- Reads what some digests tell some phones: how many events, and the first of them, of which three are named if none ended meanwhile.
select c.event_id, u.installation_id, c.total, array(select c.event_id - o.before from unnest(c.offsets[:6]) with ordinality as o(before, place) order by o.place)
  from unnest(%(events)s::bigint[], %(installations)s::uuid[]) as u(event_id, installation_id)
  cross join lateral (select i.seq from relevo.device_installations i where i.installation_id = u.installation_id offset 0) i
  cross join lateral (select c.event_id, c.total, c.offsets from relevo.digest_contents c where c.event_id = u.event_id and c.seq = i.seq offset 0) c;

-- name: read_digested
-- Reads how events are called that digests name, in the languages they have; not those that ended or whose deadline passed.
select e.id, case when e.licitacion_id is not null and e.body <> '' then e.body else coalesce(nullif(e.title, ''), e.body) end, e.texts::text
  from unnest(%(events)s::bigint[]) as u(id)
  cross join lateral (select * from relevo.notification_events e where e.id = u.id offset 0) e
 where e.ended_at is null and (e.deadline_at > relevo.now(%(now)s)) is not false;

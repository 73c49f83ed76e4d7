-- Claims a few of the oldest due deliveries for a probe. It prefers deliveries without an obstacle to phones for which the push service accepted a
-- push before, because a phone that never worked tells little of its project. It is made in shadow or live, as
-- claim_due makes one.
create or replace function relevo.claim_probe(claim uuid, worker text, of_cycle text, of_project text, of_lane text, most int, given_at timestamptz,
                                     shard int, shards int, only_types text[], not_types text[], not_worded text[], usual_lease_ms int, look_at int,
                                     in_shadow boolean)
  returns table (event_day date, event_id bigint, event_type text, at_most_once boolean, attempt_count smallint, lapse_count smallint,
                 deadline_at timestamptz, seconds_left float8, created_at timestamptz, ids bigint[], installations uuid[], tokens text[],
                 versions int[], platforms text[], locales text[], obstacles text[], quiet timestamptz[], lease_ms int, events bigint[],
                 once boolean[], deadlines timestamptz[], seconds float8[])
  language plpgsql volatile
as $$
#variable_conflict use_column
declare
  at timestamptz := relevo.now(given_at);
  faulty uuid[] := array(select u.installation_id
                           from relevo.credential_answers a cross join unnest(a.installations, a.faulty) as u(installation_id, faulty)
                          where a.project = of_project and u.faulty is not false);
  by_receipt boolean := coalesce((select p.breaker_by = 'receipt' from relevo.projects p where p.project = of_project), false);
  refused bigint[] := array(select r.event_id from relevo.refused_events r where r.project = of_project);
  picked record;
  chunk relevo.due_chunks;
  taken relevo.due_chunks[] := '{}';
  lease int;
  room int := most;
  shadow_end timestamptz := relevo.shadow_until(of_project);
begin
  if in_shadow and shadow_end is null then
    return;
  end if;
  for picked in
    select h.chunk_id, h.lease_ms, array_agg(h.id order by h.place) as ids, min(h.place) as first_place
      from (select c.id as chunk_id, u.id,
                   coalesce((select t.lease_ms from relevo.event_types t where t.event_type = c.event_type), usual_lease_ms) as lease_ms,
                   row_number() over (order by u.installation_id = any (faulty) or coalesce(u.event_id, c.event_id) = any (refused),
                                               not relevo.was_taken(u.installation_id, of_project, by_receipt), c.had_error, c.due_at, u.id) as place
              from (select o.*, sum(cardinality(o.ids)) over (order by o.due_at, o.id) - cardinality(o.ids) as before
                      from (select * from relevo.due_chunks o
                             where o.project = of_project and o.lane = of_lane and o.due_at <= at
                               and (only_types is null or o.event_type = any (only_types))
                               and (not_types is null or o.event_type <> all (not_types))
                               and (not_worded is null or o.event_type <> all (not_worded) or not relevo.is_any_worded(coalesce(o.events, array[o.event_id])))
                               and relevo.in_shard(o.id, shard, shards) and (shadow_end is null or (o.due_at < shadow_end) = in_shadow)
                             order by o.due_at, o.id limit look_at) o) c
              cross join lateral unnest(c.ids, c.installations, c.events) as u(id, installation_id, event_id)
             where c.before < look_at) h
     where h.place <= 10 * most -- some may be in others' hands
     group by h.chunk_id, h.lease_ms
     order by min(h.place)
  loop
    exit when room <= 0;
    continue when lease <> picked.lease_ms;
    delete from relevo.due_chunks d
     where d.id = (select c.id from relevo.due_chunks c where c.id = picked.chunk_id for update skip locked)
    returning d.* into chunk;
    continue when not found;
    picked.ids := picked.ids[:room];
    if cardinality(picked.ids) < cardinality(chunk.ids) then
      perform relevo.put_back(relevo.part_of_chunk(chunk, array(
        select u.place from unnest(chunk.ids) with ordinality as u(id, place) where u.id <> all (picked.ids) order by u.place)::int[]));
      chunk := relevo.part_of_chunk(chunk, array(select array_position(chunk.ids, u.id) from unnest(picked.ids) with ordinality as u(id, place) order by u.place));
    end if;
    taken := taken || chunk;
    room := room - cardinality(chunk.ids);
    lease := picked.lease_ms;
  end loop;
  if lease is null then
    return;
  end if;
  perform relevo.write_claim(claim, worker, of_cycle, lease, at, taken, in_shadow);
  return query
    select l.event_day, l.event_id, l.event_type, l.at_most_once, l.attempt_count, l.lapse_count, l.deadline_at, l.seconds_left, l.created_at,
           l.ids, l.installations, l.tokens, l.versions, l.platforms, l.locales, l.obstacles, l.quiet, l.lease_ms, l.events, l.once, l.deadlines,
           l.seconds
      from relevo.look_up_phones(taken, at, lease) l;
end
$$;

revoke all on function relevo.claim_probe from public;

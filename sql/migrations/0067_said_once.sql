-- needs relevo 0.2.0
-- Which shard a row is of stood in three functions, and what stands in the way of a delivery in two: each is said once now. Nothing else changes.

-- Tells whether a row is of a shard; all are where there are none. It is put in its place.
create function relevo.in_shard(number bigint, shard int, shards int) returns boolean
  language sql immutable parallel safe
  return shards is null or number % shards = shard;
revoke all on function relevo.in_shard(bigint, int, int) from public;

-- Claims what is due in one lane of a project, oldest first: chunks from the head as long as they share one lease, up to so many
-- deliveries, the last one in part. A chunk whose claims lapsed too often is claimed alone. Only what is taken is ever locked: the walk
-- along the index locks nothing, and each chunk is deleted by its key, unless another holds it.
create or replace function relevo.claim_due_3(claim uuid, worker text, of_cycle text, of_project text, of_lane text, most int, given_at timestamptz,
                                   shard int, shards int, only_types text[], not_types text[], suspect_lapses int, usual_lease_ms int)
  returns table (event_day date, event_id bigint, event_type text, at_most_once boolean, attempt_count smallint, lapse_count smallint,
                 deadline_at timestamptz, seconds_left float8, created_at timestamptz, ids bigint[], installations uuid[], tokens text[],
                 versions int[], platforms text[], locales text[], obstacles text[], lease_ms int, as_of text, places text)
  language plpgsql volatile
as $$
#variable_conflict use_column
declare
  at timestamptz := coalesce(given_at, now());
  head record;
  chunk relevo.due_chunks;
  taken relevo.due_chunks[] := '{}';
  lease int;
  room int := most;
begin
  for head in
    select c.id, c.lapse_count, coalesce((select t.lease_ms from relevo.event_types t where t.event_type = c.event_type), usual_lease_ms) as lease_ms
      from relevo.due_chunks c
     where c.project = of_project and c.lane = of_lane and c.due_at <= at
       and (only_types is null or c.event_type = any (only_types)) and (not_types is null or c.event_type <> all (not_types))
       and relevo.in_shard(c.id, shard, shards)
     order by c.due_at, c.id
  loop
    exit when room <= 0 or lease <> head.lease_ms or (lease is not null and head.lapse_count >= suspect_lapses);
    delete from relevo.due_chunks d
     where d.id = (select c.id from relevo.due_chunks c where c.id = head.id for update skip locked)
    returning d.* into chunk;
    continue when not found;
    if cardinality(chunk.ids) > room then
      perform relevo.put_back_1(chunk, chunk.ids[room + 1:], chunk.installations[room + 1:]);
      chunk.ids := chunk.ids[:room];
      chunk.installations := chunk.installations[:room];
    end if;
    taken := taken || chunk;
    room := room - cardinality(chunk.ids);
    lease := head.lease_ms;
    exit when head.lapse_count >= suspect_lapses;
  end loop;
  if lease is null then
    return;
  end if;
  perform relevo.write_claim_1(claim, worker, of_cycle, lease, at, taken);
  return query select * from relevo.look_at_3(taken, at, lease);
end
$$;

-- Claims a few deliveries for a probe out of the oldest due ones: first those whose phone, event and past nothing speaks against.
create or replace function relevo.claim_probe_2(claim uuid, worker text, of_cycle text, of_project text, of_lane text, most int, given_at timestamptz,
                                     shard int, shards int, only_types text[], not_types text[], usual_lease_ms int, look_at int)
  returns table (event_day date, event_id bigint, event_type text, at_most_once boolean, attempt_count smallint, lapse_count smallint,
                 deadline_at timestamptz, seconds_left float8, created_at timestamptz, ids bigint[], installations uuid[], tokens text[],
                 versions int[], platforms text[], locales text[], obstacles text[], lease_ms int)
  language plpgsql volatile
as $$
#variable_conflict use_column
declare
  at timestamptz := coalesce(given_at, now());
  faulty uuid[] := array(select u.installation_id
                           from relevo.credential_answers a cross join unnest(a.installations, a.faulty) as u(installation_id, faulty)
                          where a.project = of_project and u.faulty is not false);
  refused bigint[] := array(select r.event_id from relevo.refused_events r where r.project = of_project);
  picked record;
  chunk relevo.due_chunks;
  taken relevo.due_chunks[] := '{}';
  lease int;
  room int := most;
begin
  for picked in
    select h.chunk_id, h.lease_ms, array_agg(h.id order by h.place) as ids, min(h.place) as first_place
      from (select c.id as chunk_id, u.id,
                   coalesce((select t.lease_ms from relevo.event_types t where t.event_type = c.event_type), usual_lease_ms) as lease_ms,
                   row_number() over (order by u.installation_id = any (faulty) or c.event_id = any (refused), c.had_error, c.due_at, u.id) as place
              from (select o.*, sum(cardinality(o.ids)) over (order by o.due_at, o.id) - cardinality(o.ids) as before
                      from (select * from relevo.due_chunks o
                             where o.project = of_project and o.lane = of_lane and o.due_at <= at
                               and (only_types is null or o.event_type = any (only_types))
                               and (not_types is null or o.event_type <> all (not_types))
                               and relevo.in_shard(o.id, shard, shards)
                             order by o.due_at, o.id limit look_at) o) c
              cross join lateral unnest(c.ids, c.installations) as u(id, installation_id)
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
      perform relevo.put_back_1(chunk, array_agg(u.id), array_agg(u.installation_id))
         from unnest(chunk.ids, chunk.installations) as u(id, installation_id) where u.id <> all (picked.ids);
      select array_agg(u.id order by array_position(picked.ids, u.id)), array_agg(u.installation_id order by array_position(picked.ids, u.id))
        into chunk.ids, chunk.installations
        from unnest(chunk.ids, chunk.installations) as u(id, installation_id) where u.id = any (picked.ids);
    end if;
    taken := taken || chunk;
    room := room - cardinality(chunk.ids);
    lease := picked.lease_ms;
  end loop;
  if lease is null then
    return;
  end if;
  perform relevo.write_claim_1(claim, worker, of_cycle, lease, at, taken);
  return query select l.*, lease from relevo.look_at_2(taken, at) l;
end
$$;

-- Claims sent deliveries of a project whose receipts are due, the longest due first, as many requests' worth as fit, at least one; a row for
-- each request's worth.
create or replace function relevo.claim_awaited_1(
  claim uuid, worker text, of_project text, most int, given_at timestamptz, shard int, shards int, lease_ms int
) returns table (sent_at timestamptz, days date[], ids bigint[], installations uuid[], tickets text[], versions int[], attempts smallint[])
  language plpgsql volatile
as $$
#variable_conflict use_column
begin
  return query
  with oldest as materialized (
    select o.id
      from (select w.id, sum(cardinality(w.ids)) over (order by w.look_at, w.id) as upto,
                   row_number() over (order by w.look_at, w.id) as place
              from (select r.id, r.look_at, r.ids
                      from relevo.awaited_receipts r
                     where r.project = of_project and r.look_at <= coalesce(given_at, now()) and r.claim_token is null
                       and relevo.in_shard(r.id, shard, shards)
                     order by r.look_at, r.id
                     limit most) w) o
     where o.upto <= most or o.place = 1
  ), taken as materialized (
    update relevo.awaited_receipts r
       set claim_token = claim
     where r.id = any (array(select w.id from oldest o cross join lateral (
                               select w.id from relevo.awaited_receipts w where w.id = o.id and w.claim_token is null
                                  for no key update skip locked) w))
    returning r.look_at, r.id, r.sent_at, r.days, r.ids, r.installations, r.tickets, r.versions, r.attempts
  ), written as (
    insert into relevo.claims (token, worker_id, cycle, claimed_at, lease_ms, leased_until, days, ids)
    select claim, worker, 'receipt', coalesce(given_at, now()), claim_awaited_1.lease_ms,
           coalesce(given_at, now()) + claim_awaited_1.lease_ms * interval '1 millisecond', array_agg(u.event_day), array_agg(u.id)
      from taken t cross join unnest(t.days, t.ids) as u(event_day, id)
    having count(*) > 0
  )
  select t.sent_at, t.days, t.ids, t.installations, t.tickets, t.versions, t.attempts from taken t order by t.look_at, t.id;
end
$$;

-- Looks where the deliveries of some chunks go, and what stands in the way of each, as it is now; the chunks in their order.
create or replace function relevo.look_at_2(chunks relevo.due_chunks[], at timestamptz)
  returns table (event_day date, event_id bigint, event_type text, at_most_once boolean, attempt_count smallint, lapse_count smallint,
                 deadline_at timestamptz, seconds_left float8, created_at timestamptz, ids bigint[], installations uuid[], tokens text[],
                 versions int[], platforms text[], locales text[], obstacles text[])
  language sql stable
as $$
  select l.event_day, l.event_id, l.event_type, l.at_most_once, l.attempt_count, l.lapse_count, l.deadline_at, l.seconds_left,
         l.created_at, l.ids, l.installations, l.tokens, l.versions, l.platforms, l.locales, l.obstacles
    from relevo.look_at_3(chunks, at, null) l
$$;

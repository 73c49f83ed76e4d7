-- needs relevo 0.2.0
-- A claim tells what it took chunk by chunk: what a chunk's deliveries have in common is said once, the rest in arrays.

-- Looks where the deliveries of some chunks go, and what stands in the way of each, as it is now; the chunks in their order.
create function relevo.look_at_2(chunks relevo.due_chunks[], at timestamptz)
  returns table (event_day date, event_id bigint, event_type text, at_most_once boolean, attempt_count smallint, lapse_count smallint,
                 deadline_at timestamptz, seconds_left float8, created_at timestamptz, ids bigint[], installations uuid[], tokens text[],
                 versions int[], platforms text[], locales text[], obstacles text[])
  language sql stable
as $$
  select c.event_day, c.event_id, c.event_type, coalesce(e.at_most_once, false), c.attempt_count, c.lapse_count, e.deadline_at,
         extract(epoch from e.deadline_at - at)::float8, c.created_at, c.ids, c.installations, l.tokens, l.versions, l.platforms, l.locales, l.obstacles
    from unnest(chunks) c
    left join relevo.notification_events e on e.id = c.event_id
    cross join lateral (
      select array_agg(i.token) as tokens, array_agg(i.token_version) as versions, array_agg(i.platform) as platforms,
             array_agg(i.locale) as locales,
             array_agg(case when e.id is null then 'event_gone'
                            when e.ended_at is not null then 'event_ended'
                            when i.handled_before >= c.created_at then 'handled_elsewhere'
                            when i.owner is not null and (select exists (select from relevo.event_completions)) and exists (
                              select from relevo.event_completions h where h.event_id = c.event_id and h.owner = i.owner) then 'handled_elsewhere'
                            when e.deadline_at <= at then 'deadline_passed'
                            when i.installation_id is null then 'installation_gone'
                            when not i.may_receive then 'not_allowed'
                            when e.category = any (i.opt_outs) then 'opted_out'
                            when e.audience = 'matching' and not exists (
                              select from relevo.notification_preferences p
                               where p.installation_id = u.installation_id and relevo.preference_matches(p, e)) then 'preference_changed'
                            when c.lane = 'bulk' and (select exists (select from relevo.event_repeats r where r.held_at is not null)) and exists (
                              select from relevo.event_repeats r where r.event_id = c.event_id and r.held_at is not null) then 'repeats_held'
                       end) as obstacles
        from unnest(c.installations) as u(installation_id)
        -- looked up one by one: the arrays are in the order of the chunk, whatever the plan
        left join lateral (select x.installation_id, x.token, x.token_version, x.platform, x.locale, x.owner, x.handled_before, x.opt_outs,
                                  relevo.may_receive(x) as may_receive
                             from relevo.device_installations x where x.installation_id = u.installation_id offset 0) i on true) l
$$;

-- Claims what is due in one lane of a project, oldest first: chunks from the head as long as they share one lease, up to so many
-- deliveries, the last one in part. A chunk whose claims lapsed too often is claimed alone. Only what is taken is ever locked: the walk
-- along the index locks nothing, and each chunk is deleted by its key, unless another holds it.
create function relevo.claim_due_2(claim uuid, worker text, of_cycle text, of_project text, of_lane text, most int, given_at timestamptz,
                                   shard int, shards int, only_types text[], not_types text[], suspect_lapses int, usual_lease_ms int)
  returns table (event_day date, event_id bigint, event_type text, at_most_once boolean, attempt_count smallint, lapse_count smallint,
                 deadline_at timestamptz, seconds_left float8, created_at timestamptz, ids bigint[], installations uuid[], tokens text[],
                 versions int[], platforms text[], locales text[], obstacles text[], lease_ms int)
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
       and (shards is null or c.id % shards = shard)
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
  return query select l.*, lease from relevo.look_at_2(taken, at) l;
end
$$;

-- Claims a few deliveries for a probe out of the oldest due ones: first those whose phone, event and past nothing speaks against.
create function relevo.claim_probe_2(claim uuid, worker text, of_cycle text, of_project text, of_lane text, most int, given_at timestamptz,
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
                               and (shards is null or o.id % shards = shard)
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

-- Reads back what a claim holds, its COMMIT answer lost, and looks at it as a claim does.
create function relevo.adopt_claim_2(claim uuid, at timestamptz)
  returns table (event_day date, event_id bigint, event_type text, at_most_once boolean, attempt_count smallint, lapse_count smallint,
                 deadline_at timestamptz, seconds_left float8, created_at timestamptz, ids bigint[], installations uuid[], tokens text[],
                 versions int[], platforms text[], locales text[], obstacles text[], lease_ms int)
  language sql stable
as $$
  select l.*, c.lease_ms
    from relevo.claims c
    cross join lateral relevo.look_at_2(
      array(select row(0, d.project, d.lane, c.due_at, d.event_day, d.notification_event_id, d.event_type, d.created_at, d.attempt_count,
                       d.lapse_count, d.last_error_code is not null, array[d.id], array[d.installation_id])::relevo.due_chunks
              from unnest(c.days, c.ids) with ordinality as k(event_day, id, n)
              cross join lateral (select * from relevo.notification_deliveries d
                                   where d.event_day = k.event_day and d.id = k.id and d.status in ('pending', 'retryable') offset 0) d
             order by k.n), coalesce(at, now())) l
   where c.token = claim
$$;

drop function relevo.claim_due_1(uuid, text, text, text, text, int, timestamptz, int, int, text[], text[], int, int);
drop function relevo.claim_probe_1(uuid, text, text, text, text, int, timestamptz, int, int, text[], text[], int, int);
drop function relevo.adopt_claim_1(uuid, timestamptz);
drop function relevo.look_at_1(relevo.due_chunks[], timestamptz);

revoke all on function relevo.look_at_2(relevo.due_chunks[], timestamptz) from public;
revoke all on function relevo.claim_due_2(uuid, text, text, text, text, int, timestamptz, int, int, text[], text[], int, int) from public;
revoke all on function relevo.claim_probe_2(uuid, text, text, text, text, int, timestamptz, int, int, text[], text[], int, int) from public;
revoke all on function relevo.adopt_claim_2(uuid, timestamptz) from public;

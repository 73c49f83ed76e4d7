-- needs relevo 0.2.0
-- A look reads what is new in the queue and what it knows to be due, and not a row of each project that waits; a claim begins where a look found
-- the first chunk. Neither passes by what stopped projects have, or by what was sent under somebody's long snapshot.

-- Finds the lanes that have something new, which still have something of those asked for again, and which come next on the way along the queue's
-- index; of each the first thing that falls due, and in how many seconds that is and may be sent. Every row tells the last number given out in
-- the queue, the oldest transaction under way and the first one to come, and how far the way along the index went. No row once dispatch is paused.
create function relevo.due_lanes_2(given_at timestamptz, after_id bigint, most_new int, again_projects text[], again_lanes text[],
                                   again_since timestamptz[], after_project text, after_lane text, most int)
  returns table (project text, lane text, due_at timestamptz, wait_s double precision, troubled boolean, numbered bigint, oldest_xid bigint,
                 next_xid bigint, walked int, last_project text, last_lane text)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
  set random_page_cost = 0 set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  at timestamptz := coalesce(given_at, now());
begin
  if exists (select from relevo.cycle_state s where s.cycle = 'dispatch' and s.source = '' and s.paused_at is not null) then
    return;
  end if;
  return query
    with recursive way as ( -- the first of a lane in the index is also the one that falls due first
      (select 1 as place, q.project, q.lane, q.due_at from relevo.due_chunks q
        where (q.project, q.lane) > (after_project, after_lane)
        order by q.project, q.lane, q.due_at, q.id limit least(most, 1))
      union all
      select w.place + 1, n.project, n.lane, n.due_at
        from way w
        cross join lateral (select q.project, q.lane, q.due_at from relevo.due_chunks q
                             where (q.project, q.lane) > (w.project, w.lane)
                             order by q.project, q.lane, q.due_at, q.id limit 1) n
    ), walked as materialized (
      select w.place, w.project, w.lane, w.due_at from way w limit most
    ), lanes as materialized (
      select f.project, f.lane, min(f.due_at) as due_at
        from (select w.project, w.lane, w.due_at from walked w
              union all
              select n.project, n.lane, n.due_at
                from (select q.project, q.lane, q.due_at from relevo.due_chunks q where q.id > after_id order by q.id limit most_new) n
              union all
              select a.project, a.lane, n.due_at
                from unnest(again_projects, again_lanes, again_since) as a(project, lane, since)
                cross join lateral (select q.due_at from relevo.due_chunks q
                                     where q.project = a.project and q.lane = a.lane and q.due_at >= coalesce(a.since, '-infinity')
                                     order by q.due_at, q.id limit 1) n) f
       group by f.project, f.lane
    ), head as materialized (
      select coalesce((select s.last_value from pg_sequences s where s.schemaname = 'relevo' and s.sequencename = 'due_chunks_id_seq'), 0) as numbered,
             pg_snapshot_xmin(pg_current_snapshot())::text::bigint as oldest_xid,
             pg_snapshot_xmax(pg_current_snapshot())::text::bigint as next_xid,
             (select count(*)::int from walked) as walked
    )
    select l.project, l.lane, case when l.due_at > '2000-01-01Z' then least(l.due_at, '9000-01-01Z') end, -- no other is worth a look's failing
           extract(epoch from least(greatest(l.due_at, case when p.breaker <> 'closed' then p.probe_at else p.rest_until end, '2000-01-01Z'),
                                    '9000-01-01Z') - at)::float8,
           coalesce(p.breaker <> 'closed', false), h.numbered, h.oldest_xid, h.next_xid, h.walked, w.project, w.lane
      from head h
      left join walked w on w.place = h.walked
      left join lanes l on true
      left join relevo.projects p on p.project = l.project;
end
$$;
revoke all on function relevo.due_lanes_2(timestamptz, bigint, int, text[], text[], timestamptz[], text, text, int) from public;
drop function relevo.due_lanes_1(timestamptz, int);

-- Claims what is due in one lane of a project, oldest first: chunks from the head as long as they share one lease, up to so many
-- deliveries, the last one in part. A chunk whose claims lapsed too often is claimed alone. Only what is taken is ever locked: the walk
-- along the index locks nothing, and each chunk is deleted by its key, unless another holds it. It begins at the time that a look found the
-- first chunk at: while somebody holds a snapshot, all that was sent meanwhile still stands before that.
create function relevo.claim_due_4(claim uuid, worker text, of_cycle text, of_project text, of_lane text, most int, given_at timestamptz,
                                   shard int, shards int, only_types text[], not_types text[], suspect_lapses int, usual_lease_ms int,
                                   since timestamptz)
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
     where c.project = of_project and c.lane = of_lane and c.due_at <= at and c.due_at >= coalesce(since, '-infinity')
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
revoke all on function relevo.claim_due_4(uuid, text, text, text, text, int, timestamptz, int, int, text[], text[], int, int, timestamptz) from public;
drop function relevo.claim_due_3(uuid, text, text, text, text, int, timestamptz, int, int, text[], text[], int, int);

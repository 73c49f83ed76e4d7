-- needs relevo 0.2.0
-- A claim tells where the rows of its phones lie, so that the second look before a request goes straight there: to find each phone by its key
-- once more was a third of all that the guards cost.

-- Looks where the deliveries of some chunks go, and what stands in the way of each, as it is now; the chunks in their order. It also tells
-- of which lease they are, in which file the phones lie and from which transaction on one may have written what is not seen here, and where in
-- that file each phone lies.
create function relevo.look_at_3(chunks relevo.due_chunks[], at timestamptz, lease int)
  returns table (event_day date, event_id bigint, event_type text, at_most_once boolean, attempt_count smallint, lapse_count smallint,
                 deadline_at timestamptz, seconds_left float8, created_at timestamptz, ids bigint[], installations uuid[], tokens text[],
                 versions int[], platforms text[], locales text[], obstacles text[], lease_ms int, as_of text, places text)
  language sql stable
as $$
  select c.event_day, c.event_id, c.event_type, coalesce(e.at_most_once, false), c.attempt_count, c.lapse_count, e.deadline_at,
         extract(epoch from e.deadline_at - at)::float8, c.created_at, c.ids, c.installations, l.tokens, l.versions, l.platforms, l.locales, l.obstacles,
         lease, pg_relation_filenode('relevo.device_installations') || ' ' || pg_snapshot_xmin(pg_current_snapshot())::xid, l.places::text
    from unnest(chunks) c
    left join relevo.notification_events e on e.id = c.event_id
    cross join lateral (
      select array_agg(i.token) as tokens, array_agg(i.token_version) as versions, array_agg(i.platform) as platforms,
             array_agg(i.locale) as locales, array_agg(i.ctid) as places,
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
                                  relevo.may_receive(x) as may_receive, x.ctid
                             from relevo.device_installations x where x.installation_id = u.installation_id offset 0) i on true) l
$$;

revoke all on function relevo.look_at_3(relevo.due_chunks[], timestamptz, int) from public;

-- Claims what is due in one lane of a project, oldest first: chunks from the head as long as they share one lease, up to so many
-- deliveries, the last one in part. A chunk whose claims lapsed too often is claimed alone. Only what is taken is ever locked: the walk
-- along the index locks nothing, and each chunk is deleted by its key, unless another holds it.
create function relevo.claim_due_3(claim uuid, worker text, of_cycle text, of_project text, of_lane text, most int, given_at timestamptz,
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
  return query select * from relevo.look_at_3(taken, at, lease);
end
$$;

revoke all on function relevo.claim_due_3(uuid, text, text, text, text, int, timestamptz, int, int, text[], text[], int, int) from public;

-- Tells of phones that were seen in some places whether each is just as it was then. A row there that is seen now, and whose writer was done
-- before the first look, was to be seen then, too; in one file a place holds one such row, so it is the one that was seen, and who changes a
-- phone writes another. Rows move without being written only into a new file. Whatever else is met is no yes: then somebody looks by key.
-- So is a row that nobody wrote for two thousand million transactions, whose writer's number means another by now. An event may have been
-- handled meanwhile on another phone of an owner, which changes no phone.
create function relevo.phones_unmoved_1(places tid[], as_of text, events bigint[]) returns boolean
  language plpgsql stable
  set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
  least int := age(split_part(as_of, ' ', 2)::xid);
begin
  return least > 0
    and pg_relation_filenode('relevo.device_installations') = split_part(as_of, ' ', 1)::oid
    and not exists (select from relevo.event_completions c where c.event_id = any (events))
    and cardinality(places) = (select count(*) from relevo.device_installations i where i.ctid = any (places) and age(i.xmin) > least);
end
$$;

revoke all on function relevo.phones_unmoved_1(tid[], text, bigint[]) from public;

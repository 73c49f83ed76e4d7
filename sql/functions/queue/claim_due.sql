-- Claims due deliveries in one lane of a project, oldest first: chunks from the head of the queue as long as they share one lease, up to a number
-- of deliveries, the last chunk in part. A chunk whose claims lapsed too often is claimed alone. Only claimed chunks are locked: walking along the
-- index locks nothing, and each chunk is deleted by its key, unless another holds it. The walk begins at `since`, where the first chunk was seen:
-- while a snapshot is held, the dead rows of sent chunks still stand before that. Of the types `not_worded` it takes only events with a text of
-- their own. A claim is made either in shadow, of what fell due before the end of the project's shadow mode, or live, of the rest: a worker that asks for
-- the other finds nothing, so that one that does not know of the mode sends nothing.
create or replace function relevo.claim_due(claim uuid, worker text, of_cycle text, of_project text, of_lane text, most int, given_at timestamptz,
                                   shard int, shards int, only_types text[], not_types text[], not_worded text[], suspect_lapses int, usual_lease_ms int,
                                   since timestamptz, in_shadow boolean)
  returns table (event_day date, event_id bigint, event_type text, at_most_once boolean, attempt_count smallint, lapse_count smallint,
                 deadline_at timestamptz, seconds_left float8, created_at timestamptz, ids bigint[], installations uuid[], tokens text[],
                 versions int[], platforms text[], locales text[], obstacles text[], quiet timestamptz[], lease_ms int, events bigint[],
                 once boolean[], deadlines timestamptz[], seconds float8[])
  language plpgsql volatile
as $$
#variable_conflict use_column
declare
  at timestamptz := relevo.now(given_at);
  head record;
  chunk relevo.due_chunks;
  rest relevo.due_chunks;
  taken relevo.due_chunks[] := '{}';
  lease int;
  room int := most;
  shadow_end timestamptz := relevo.shadow_until(of_project);
begin
  if in_shadow and shadow_end is null then
    return;
  end if;
  for head in
    select c.id, c.lapse_count, coalesce((select t.lease_ms from relevo.event_types t where t.event_type = c.event_type), usual_lease_ms) as lease_ms
      from relevo.due_chunks c
     where c.project = of_project and c.lane = of_lane and c.due_at <= at and c.due_at >= coalesce(since, '-infinity')
       and (only_types is null or c.event_type = any (only_types)) and (not_types is null or c.event_type <> all (not_types))
       and (not_worded is null or c.event_type <> all (not_worded) or not relevo.is_any_worded(coalesce(c.events, array[c.event_id])))
       and relevo.in_shard(c.id, shard, shards) and (shadow_end is null or (c.due_at < shadow_end) = in_shadow)
     order by c.due_at, c.id
  loop
    exit when room <= 0 or lease <> head.lease_ms or (lease is not null and head.lapse_count >= suspect_lapses);
    delete from relevo.due_chunks d
     where d.id = (select c.id from relevo.due_chunks c where c.id = head.id for update skip locked)
    returning d.* into chunk;
    continue when not found;
    if cardinality(chunk.ids) > room then
      rest := chunk;
      rest.ids := chunk.ids[room + 1:];
      rest.installations := chunk.installations[room + 1:];
      rest.inboxes := chunk.inboxes[room + 1:];
      rest.events := chunk.events[room + 1:];
      perform relevo.put_back(rest);
      chunk.ids := chunk.ids[:room];
      chunk.installations := chunk.installations[:room];
      chunk.inboxes := chunk.inboxes[:room];
      chunk.events := chunk.events[:room];
    end if;
    taken := taken || chunk;
    room := room - cardinality(chunk.ids);
    lease := head.lease_ms;
    exit when head.lapse_count >= suspect_lapses;
  end loop;
  if lease is null then
    return;
  end if;
  perform relevo.write_claim(claim, worker, of_cycle, lease, at, taken, in_shadow);
  return query select * from relevo.look_up_phones(taken, at, lease);
end
$$;

revoke all on function relevo.claim_due from public;

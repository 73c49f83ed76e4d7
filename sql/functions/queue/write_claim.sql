-- Writes a claim: who has it, until when, what it holds, and whether it was made in shadow. Many small chunks are unnested by one statement, a few large ones one by one.
create or replace function relevo.write_claim(claim uuid, worker text, of_cycle text, lease int, at timestamptz, chunks relevo.due_chunks[],
                                              in_shadow boolean) returns void
  language plpgsql
as $$
declare
  few constant int := 20;
  chunk relevo.due_chunks;
  held_days date[] := '{}';
  held_ids bigint[] := '{}';
begin
  if cardinality(chunks) <= few then
    foreach chunk in array chunks loop
      held_days := held_days || array_fill(chunk.event_day, array[cardinality(chunk.ids)]);
      held_ids := held_ids || chunk.ids;
    end loop;
  else
    select array_agg(c.event_day), array_agg(u.id) into held_days, held_ids
      from unnest(chunks) c cross join lateral unnest(c.ids) as u(id);
  end if;
  insert into relevo.claims (token, worker_id, cycle, claimed_at, lease_ms, leased_until, days, ids, events, due_at, in_shadow)
  select claim, worker, of_cycle, at, lease, at + lease * interval '1 millisecond', held_days, held_ids, array_agg(distinct u.event_id), min(c.due_at),
         write_claim.in_shadow
    from unnest(chunks) c cross join lateral unnest(coalesce(c.events, array[c.event_id])) as u(event_id);
end
$$;

revoke all on function relevo.write_claim from public;

-- Returns a chunk with some of its deliveries alone, given by their places and in this order.
create or replace function relevo.part_of_chunk(chunk relevo.due_chunks, places int[]) returns relevo.due_chunks
  language plpgsql immutable
as $$
begin
  select array_agg(chunk.ids[p.place] order by p.n), array_agg(chunk.installations[p.place] order by p.n),
         case when chunk.inboxes is not null then array_agg(chunk.inboxes[p.place] order by p.n) end,
         case when chunk.events is not null then array_agg(chunk.events[p.place] order by p.n) end
    into chunk.ids, chunk.installations, chunk.inboxes, chunk.events
    from unnest(places) with ordinality as p(place, n);
  return chunk;
end
$$;

revoke all on function relevo.part_of_chunk from public;

-- put_back as 0.3.0 calls it: what it has no columns for is looked up in the chunk.
create or replace function relevo.put_back_1(chunk relevo.due_chunks, left_ids bigint[], left_installations uuid[]) returns void
  language sql volatile
as $$ select relevo.put_back(relevo.part_of_chunk($1, array(
  select array_position(($1).ids, l.id) from unnest($2) with ordinality as l(id, place) order by l.place))) $$;

revoke all on function relevo.put_back_1 from public;

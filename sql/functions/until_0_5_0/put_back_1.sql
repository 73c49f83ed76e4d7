-- put_back as 0.3.0 calls it: the inboxes are looked up in the chunk.
create or replace function relevo.put_back_1(chunk relevo.due_chunks, left_ids bigint[], left_installations uuid[]) returns void
  language sql volatile
as $$ select relevo.put_back($1, $2, $3, (
  select array_agg(c.inbox_id order by l.place)
    from unnest($2) with ordinality as l(id, place)
    left join unnest(($1).ids, ($1).inboxes) as c(id, inbox_id) on c.id = l.id
   where ($1).inboxes is not null)) $$;

revoke all on function relevo.put_back_1 from public;

-- put_back as 0.3.0 calls it.
create or replace function relevo.put_back_1(chunk relevo.due_chunks, left_ids bigint[], left_installations uuid[]) returns void
  language sql volatile
as $$ select relevo.put_back($1, $2, $3) $$;

revoke all on function relevo.put_back_1 from public;

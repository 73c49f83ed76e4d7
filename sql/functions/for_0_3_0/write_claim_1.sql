-- write_claim as 0.3.0 calls it.
create or replace function relevo.write_claim_1(claim uuid, worker text, of_cycle text, lease int, at timestamptz, chunks
    relevo.due_chunks[]) returns void
  language sql volatile
as $$ select relevo.write_claim($1, $2, $3, $4, $5, $6, false) $$;

revoke all on function relevo.write_claim_1 from public;

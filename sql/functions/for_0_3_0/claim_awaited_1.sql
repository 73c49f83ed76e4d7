-- claim_awaited as 0.3.0 calls it.
create or replace function relevo.claim_awaited_1( claim uuid, worker text, of_project text, most int, given_at timestamptz, shard int,
    shards int, lease_ms int ) returns table (sent_at timestamptz, days date[], ids bigint[], installations uuid[], tickets text[], versions
    int[], attempts smallint[])
  language sql volatile
as $$ select * from relevo.claim_awaited($1, $2, $3, $4, $5, $6, $7, $8) $$;

revoke all on function relevo.claim_awaited_1 from public;

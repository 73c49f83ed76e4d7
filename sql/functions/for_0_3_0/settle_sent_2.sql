-- settle_sent as 0.3.0 calls it.
create or replace function relevo.settle_sent_2(claim uuid, of_project text, sent_ids bigint[], unsent int[], tickets text[],
    of_installations uuid[], versions int[], of_attempts smallint[], request_ids uuid[], firsts int[], lasts int[], events bigint[], formers
    text[], counts int[], receipt_ms int, finish boolean, given_at timestamptz) returns int
  language sql volatile
as $$ select relevo.settle_sent($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) $$;

revoke all on function relevo.settle_sent_2 from public;

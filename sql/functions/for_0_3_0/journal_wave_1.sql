-- journal_wave as 0.3.0 calls it.
create or replace function relevo.journal_wave_1(claim uuid, of_project text, wave_ids bigint[], events bigint[], request_ids uuid[], firsts
    int[], lasts int[], timeout_ms int, given_at timestamptz) returns boolean
  language sql volatile
as $$ select relevo.journal_plain_wave($1, $2, $3, $4, $5, $6, $7, $8, $9) $$;

revoke all on function relevo.journal_wave_1 from public;

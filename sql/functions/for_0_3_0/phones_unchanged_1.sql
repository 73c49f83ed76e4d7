-- phones_unchanged as 0.3.0 calls it.
create or replace function relevo.phones_unchanged_1(installations uuid[], versions int[], events bigint[], made timestamptz) returns
    boolean
  language sql stable
as $$ select relevo.phones_unchanged($1, $2, $3, $4) $$;

revoke all on function relevo.phones_unchanged_1 from public;

-- settle_confirmed as 0.3.0 calls it.
create or replace function relevo.settle_confirmed_1(claim uuid, asked int, given_at timestamptz) returns int
  language sql volatile
as $$ select relevo.settle_confirmed($1, $2, $3) $$;

revoke all on function relevo.settle_confirmed_1 from public;

-- matching_window as 0.3.0 calls it.
create or replace function relevo.matching_window_1(buckets text[], after_seq bigint, upto_seq bigint, most int) returns bigint
  language sql stable
as $$ select relevo.matching_window($1, $2, $3, $4) $$;

revoke all on function relevo.matching_window_1 from public;

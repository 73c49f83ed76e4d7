-- delete_leftovers as 0.3.0 calls it.
create or replace function relevo.delete_leftovers_1(most int) returns int
  language sql volatile
as $$ select relevo.delete_leftovers($1) $$;

revoke all on function relevo.delete_leftovers_1 from public;

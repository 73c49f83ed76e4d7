-- phones_unmoved as 0.3.0 calls it.
create or replace function relevo.phones_unmoved_1(places tid[], as_of text, events bigint[]) returns boolean
  language sql stable
as $$ select relevo.phones_unmoved($1, $2, $3) $$;

revoke all on function relevo.phones_unmoved_1 from public;

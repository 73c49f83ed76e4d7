-- Returns every prefix of every code: a preference's rubro is one of them exactly if it is a prefix of a code. It is in plpgsql, because each
-- insert of an event calls it for a generated column: PostgreSQL would parse and plan the text of an SQL function again each time.
create or replace function relevo.prefixes(codes text[]) returns text[]
  language plpgsql immutable parallel safe
as $$
begin
  return case when cardinality(codes) = 0 then '{}'::text[] else relevo.prefixes_of_some(codes) end;
end
$$;

revoke all on function relevo.prefixes from public;

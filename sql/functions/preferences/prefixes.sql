-- Returns every prefix of every code: a preference's rubro is one of them exactly if it is a prefix of a code. Most events have none, which
-- costs nothing: it is inlined.
create or replace function relevo.prefixes(codes text[]) returns text[]
  language sql immutable parallel safe -- not strict: only so it is called in its caller's place
  return case when cardinality(codes) = 0 then '{}'::text[] else relevo.prefixes_of_some(codes) end;

revoke all on function relevo.prefixes from public;

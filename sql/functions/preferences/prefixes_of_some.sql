-- The beginnings of some codes. Every event has the column, few have codes: of none it is known in the caller's place.
create or replace function relevo.prefixes_of_some(codes text[]) returns text[]
  language sql immutable strict parallel safe
  return array(select distinct left(c.code, n.n) from unnest(codes) as c(code) cross join generate_series(1, 20) as n(n)
                where n.n <= length(c.code));

revoke all on function relevo.prefixes_of_some from public;

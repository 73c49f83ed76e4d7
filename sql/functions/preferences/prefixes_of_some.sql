-- Returns every prefix of some codes, for prefixes.
create or replace function relevo.prefixes_of_some(codes text[]) returns text[]
  language sql immutable strict parallel safe
  return array(select distinct left(c.code, n.n) from unnest(codes) as c(code) cross join generate_series(1, 20) as n(n)
                where n.n <= length(c.code));

revoke all on function relevo.prefixes_of_some from public;

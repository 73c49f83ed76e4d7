-- Returns the hashes of the tokens of resolved installations, in their order.
create or replace function relevo.token_hashes(resolved jsonb) returns bytea[] language sql immutable parallel safe
return (select array_agg(relevo.token_hash(g.i ->> 'provider', g.i ->> 'part', g.i ->> 'token') order by g.ord)
          from jsonb_array_elements(resolved) with ordinality as g(i, ord));

revoke all on function relevo.token_hashes from public;

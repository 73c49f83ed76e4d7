-- Returns places spread evenly over a range of phones' sequence numbers, each of one width. Each lies somewhere in its part of the range, so that a
-- regular pattern of phones does not fall in step with them. The same range has the same places.
create or replace function relevo.spread_places(after_seq bigint, upto_seq bigint, places int, wide bigint) returns table (after bigint, upto bigint)
  language sql immutable
as $$
  select p.begins + p.shift, p.begins + p.shift + wide
    from (select b.begins, (hashint4(n)::bigint & 2147483647) % greatest(b.ends - b.begins - wide + 1, 1) as shift
            from generate_series(0, places - 1) as n
            cross join lateral (select after_seq + (upto_seq - after_seq) * n / places as begins,
                                       after_seq + (upto_seq - after_seq) * (n + 1) / places as ends) b) p
$$;

revoke all on function relevo.spread_places from public;

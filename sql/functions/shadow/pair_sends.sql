-- Pairs what another system sent (side t) with what Relevo would have sent (side o), by person and thing: within each run of them that has no longer gap
-- than given, the first with the first, the second with the second, as far as they are not further apart than that.
create or replace function relevo.pair_sends(sides relevo.shadow_side[], gap interval) returns table (theirs bigint, ours bigint)
  language plpgsql stable
  set enable_sort = on -- sorting allowed
  set enable_hashjoin = on set enable_nestloop = off -- many with many
as $$
begin
  return query
    with side as materialized (
      select u.*, coalesce(u.at - lag(u.at) over (partition by u.subject, u.what order by u.at, u.side, u.id) > gap, true)::int as begins
        from unnest(sides) u where u.subject is not null and u.what is not null
    ), clustered as materialized (
      select s.*, sum(s.begins) over (partition by s.subject, s.what order by s.at, s.side, s.id) as cluster from side s
    ), placed as materialized (
      select c.*, row_number() over (partition by c.subject, c.what, c.cluster, c.side order by c.at, c.id) as place from clustered c
    )
    select t.id, o.id
      from placed t
      join placed o on o.subject = t.subject and o.what = t.what and o.cluster = t.cluster and o.place = t.place and o.side = 'o'
     where t.side = 't' and o.at between t.at - gap and t.at + gap;
end
$$;

revoke all on function relevo.pair_sends from public;

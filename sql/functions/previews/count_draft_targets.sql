-- Counts the phones that a drafted event reaches by a push, and those that it reaches by a digest alone, where there are many by a sample; and names some of the former.
create or replace function relevo.count_draft_targets(e relevo.notification_events, named uuid[], owners text[], most int) returns jsonb
  language plpgsql stable
  set enable_seqscan = off -- lookups only
as $$
declare
  all_looks constant int := 10000; -- so many are counted
  looks constant int := 2000; -- so many speak for more
  buckets text[];
  first_seq bigint := (select coalesce(min(i.seq), 1) - 1 from relevo.device_installations i);
  last_seq bigint := (select coalesce(max(i.seq), 0) from relevo.device_installations i);
  places int := 1;
  part numeric := last_seq - first_seq; -- how many numbers there are for each place
  wide bigint := last_seq - first_seq;
  seen bigint;
  reached bigint;
  squares numeric; -- of how many are reached at each place: what stands close together is less certain than what is spread
  unit numeric; -- how many one place may add that was missed
  margin numeric;
  share numeric;
  sample uuid[];
  kinds jsonb; -- of phones, by provider and platform, among the first of them
  found uuid[];
  digested bigint;
  held jsonb; -- of these phones, how many have quiet hours or no room
begin
  if e.audience = 'matching' then
    buckets := array(select b.bucket from unnest(relevo.event_buckets(e)) as b(bucket)
                      where exists (select from relevo.preference_index x where x.bucket = b.bucket));
  elsif e.audience = 'attributes' then
    buckets := relevo.rarest_words(e.match_where, e.project);
  end if;
  if e.audience in ('everyone', 'matching', 'attributes')
     and relevo.count_candidates(e.audience, e.project, buckets, first_seq, last_seq, 1, wide, all_looks + 1) > all_looks then
    -- each place is looked up in each bucket
    places := least(greatest(2000 / coalesce(cardinality(buckets), 1), 10), wide);
    part := wide::numeric / places;
    wide := greatest(part / 250, 1);
    seen := relevo.count_candidates(e.audience, e.project, buckets, first_seq, last_seq, places, wide, 2 * looks);
    wide := least(greatest(round(wide::numeric * looks / greatest(seen, 1)), 1), ceil(part));
    while wide > 1 and relevo.count_candidates(e.audience, e.project, buckets, first_seq, last_seq, places, wide, 2 * looks) = 2 * looks loop
      wide := wide / 2;
    end loop;
  end if;
  with met as materialized (
    select s.installation_id, p.after, s.in_digest, row_number() over (partition by s.in_digest) as n
      from relevo.spread_places(first_seq, last_seq, places, wide) p
      cross join lateral relevo.find_draft_targets(e, named, owners, buckets, p.after, p.upto) s
     where e.project is null or s.project = e.project
  )
  select coalesce(sum(h.phones), 0), coalesce(sum(h.phones ^ 2), 0), coalesce(max(h.phones), 0),
         (select array_agg(m.installation_id order by m.n) from met m where m.n <= most and not m.in_digest),
         (select coalesce(jsonb_agg(k.kind order by k.kind), '[]')
            from (select distinct jsonb_build_object('provider', i.provider, 'platform', i.platform) as kind
                    from met m
                    cross join lateral (select i.provider, i.platform from relevo.device_installations i
                                         where i.installation_id = m.installation_id offset 0) i
                   where m.n <= looks and not m.in_digest) k),
         (select array_agg(m.installation_id) from met m where not m.in_digest), (select count(*) from met m where m.in_digest)
    into reached, squares, unit, sample, kinds, found, digested
    from (select count(*) as phones from met m where not m.in_digest group by m.after) h;
  share := part / greatest(wide, 1);
  unit := greatest(unit, ceil(looks::numeric / places), 1);
  margin := case when places = 1 then 0 else 2 * sqrt(squares - reached ^ 2 / places + unit ^ 2) end;
  held := relevo.count_held(e, found, greatest(now(), e.scheduled_at));
  return jsonb_build_object('digested', round(digested * share), 'waiting', round((held ->> 'waiting')::numeric * share), 'capped', round((held ->> 'capped')::numeric * share),
    'to_digest', round((held ->> 'to_digest')::numeric * share), 'batched', round((held ->> 'batched')::numeric * share),
    'count', round(reached * share), 'exact', places = 1, 'kinds', kinds,
    'at_least', round(greatest(reached, (reached - margin) * share)),
    'at_most', round(case when places = 1 then reached else least((reached + margin + 2 * unit) * share, last_seq - first_seq) end),
    'sample', coalesce((select jsonb_agg(jsonb_build_object('installation_id', i.installation_id, 'owner', i.owner, 'project', i.project,
                                                            'provider', i.provider, 'platform', i.platform) order by u.n)
                          from unnest(sample) with ordinality as u(id, n)
                          join relevo.device_installations i on i.installation_id = u.id), '[]'));
end
$$;

revoke all on function relevo.count_draft_targets from public;

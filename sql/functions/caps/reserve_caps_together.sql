-- Counts small events, each with one of its phones, against the caps that hold for them, and returns of each phone the cap that its event is
-- above; null if no event is above any. All that has room is counted by one statement. Caps without room for all of these events are looked at
-- again, as reserve_caps does: what ended unsent is taken out. The room that is left goes to the first events, for each person to all caps or none.
-- It earns 39 % of the row personal_cap_within of `make bench ARGS="--only personal"`, run with it and with reserve_caps for each event in turns.
create or replace function relevo.reserve_caps_together(of_events bigint[], phones uuid[], at timestamptz) returns int[]
  language plpgsql volatile
  set enable_hashjoin = on set enable_sort = on -- many with many
as $$
declare
  dues timestamptz[];
  asked relevo.cap_uses[];
  contested bigint[];
  room int[]; -- of each that is asked for
  granted int[] := '{}'; -- places of these, beside the events that they got
  granted_events bigint[] := '{}';
  above int[];
  person record; -- one of an event's, with the places of what is asked for
  use_at int;
begin
  if exists (select from relevo.quiet_profiles) then
    dues := relevo.quiet_dues_of_events(of_events, phones, at);
  end if;
  select array_agg(row(w.cap, w.subject, w.bucket, w.events, false)::relevo.cap_uses) into asked
    from (select w.cap, w.subject, w.bucket, array_agg(w.event_id order by w.places[1]) as events
            from relevo.caps_of_events(of_events, phones, dues, at) w
           group by w.cap, w.subject, w.bucket) w;
  if asked is null then
    return null;
  end if;

  -- Every row is locked here, in the order of all who write them, also where there is no room.
  with counted as (
    insert into relevo.cap_uses as u (cap, subject, bucket, events)
    select a.cap, a.subject, a.bucket, case when cardinality(a.events) <= c.most then a.events else '{}' end
      from unnest(asked) a join relevo.caps c on c.id = a.cap
     order by a.cap, a.subject, a.bucket
    on conflict (cap, subject, bucket) do update set events = u.events || excluded.events
     where not u.is_spent and cardinality(u.events) + cardinality(excluded.events) <= (select c.most from relevo.caps c where c.id = u.cap)
    returning u.cap, u.subject, u.bucket, cardinality(u.events) as n
  )
  select array_agg(distinct n.event_id) into contested
    from unnest(asked) a
    cross join unnest(a.events) as n(event_id)
   where not exists (select from counted c where c.cap = a.cap and c.subject = a.subject and c.bucket = a.bucket and c.n >= cardinality(a.events));
  if contested is null then
    return null;
  end if;

  -- Contested ones are taken out again, and, if there is no room, pushes that ended unsent.
  update relevo.cap_uses u set events = k.kept, is_spent = k.all_sent and cardinality(k.kept) >= c.most
    from unnest(asked) a
    join relevo.caps c on c.id = a.cap
    cross join lateral (select coalesce(array_agg(x.event_id order by x.place) filter (where x.what <> 'unsent'), '{}') as kept,
                               coalesce(bool_and(x.what = 'sent'), false) as all_sent
                          from (select n.event_id, n.place,
                                       case when n.event_id = any (of_events) then 'open' else relevo.counts_as(n.event_id, a.cap, a.subject) end as what
                                  from relevo.cap_uses r cross join lateral unnest(r.events) with ordinality as n(event_id, place)
                                 where r.cap = a.cap and r.subject = a.subject and r.bucket = a.bucket and n.event_id <> all (contested)) x) k
   where u.cap = a.cap and u.subject = a.subject and u.bucket = a.bucket and a.events && contested and not u.is_spent;
  room := array(select coalesce(case when not u.is_spent then c.most - cardinality(u.events) end, 0)
                  from unnest(asked) with ordinality as a(cap, subject, bucket, events, is_spent, place)
                  join relevo.caps c on c.id = a.cap
                  left join relevo.cap_uses u on u.cap = a.cap and u.subject = a.subject and u.bucket = a.bucket
                 order by a.place);
  for person in
    select array_agg(a.place::int) as uses, v.event_id
      from unnest(asked) with ordinality as a(cap, subject, bucket, events, is_spent, place)
      cross join unnest(a.events) as v(event_id)
     where v.event_id = any (contested)
     group by v.event_id, a.subject
     order by array_position(of_events, v.event_id)
  loop
    continue when (select min(room[u.place]) from unnest(person.uses) as u(place)) <= 0;
    foreach use_at in array person.uses loop
      room[use_at] := room[use_at] - 1;
      granted := granted || use_at;
      granted_events := granted_events || person.event_id;
    end loop;
  end loop;
  update relevo.cap_uses u set events = u.events || g.events
    from (select asked[g.place] as a, array_agg(g.event_id) as events from unnest(granted, granted_events) as g(place, event_id) group by g.place) g
   where u.cap = (g.a).cap and u.subject = (g.a).subject and u.bucket = (g.a).bucket;

  select array_agg(x.cap order by n.place) into above
    from generate_series(1, cardinality(of_events)) as n(place)
    left join (select p.place, min(w.cap) as cap
                 from relevo.caps_of_events(of_events, phones, dues, at) w
                 join relevo.cap_uses u on u.cap = w.cap and u.subject = w.subject and u.bucket = w.bucket and w.event_id <> all (u.events)
                 cross join unnest(w.places) as p(place)
                where w.event_id = any (contested)
                group by p.place) x on x.place = n.place;
  return above;
end
$$;

revoke all on function relevo.reserve_caps_together from public;

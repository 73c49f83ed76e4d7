-- Counts an event against the caps that hold for some phones, and returns of each phone the cap it is above; null if no phone is above any.
-- Other transactions that count for the same person wait. If there is no room, pushes that ended unsent are taken out first: only then they are looked for,
-- so what ends costs nothing. An event that is above one cap counts against none.
create or replace function relevo.reserve_caps(e relevo.notification_events, phones uuid[], dues timestamptz[], at timestamptz) returns int[]
  language plpgsql volatile
as $$
declare
  asked relevo.cap_uses[];
  capped text[];
  above int[];
begin
  with wanted as materialized (
    select * from relevo.applicable_caps(e, phones, dues, at)
  ), counted as (
    insert into relevo.cap_uses as u (cap, subject, bucket, events)
    select w.cap, w.subject, w.bucket, array[e.id] from wanted w order by w.cap, w.subject, w.bucket
    on conflict (cap, subject, bucket) do update set events = u.events || e.id
     where not u.is_spent and cardinality(u.events) < (select c.most from relevo.caps c where c.id = u.cap) and e.id <> all (u.events)
    returning u.cap, u.subject, u.bucket
  )
  select array_agg(row(w.cap, w.subject, w.bucket, '{}', false)::relevo.cap_uses order by w.cap, w.subject, w.bucket) into asked
    from wanted w where not exists (select from counted c where c.cap = w.cap and c.subject = w.subject);
  if asked is null then
    return null;
  end if;
  -- a new statement: it sees what those wrote who were waited for
  update relevo.cap_uses u
     set events = case when cardinality(k.kept) < c.most then k.kept || e.id else k.kept end,
         is_spent = k.all_sent and cardinality(k.kept) >= c.most
    from unnest(asked) a
    join relevo.caps c on c.id = a.cap
    cross join lateral (select coalesce(array_agg(x.event_id order by x.place) filter (where x.what <> 'unsent'), '{}') as kept, bool_and(x.what = 'sent') as all_sent
                          from (select n.event_id, n.place, relevo.counts_as(n.event_id, a.cap, a.subject) as what
                                  from relevo.cap_uses r cross join lateral unnest(r.events) with ordinality as n(event_id, place)
                                 where r.cap = a.cap and r.subject = a.subject and r.bucket = a.bucket) x) k
   where u.cap = a.cap and u.subject = a.subject and u.bucket = a.bucket and not u.is_spent and e.id <> all (u.events);
  select array_agg(a.subject) into capped
    from unnest(asked) a join relevo.cap_uses u on u.cap = a.cap and u.subject = a.subject and u.bucket = a.bucket
   where e.id <> all (u.events);
  if capped is null then
    return null;
  end if;
  with wanted as materialized (
    select * from relevo.applicable_caps(e, phones, dues, at) w where w.subject = any (capped)
  ), freed as (
    update relevo.cap_uses u set events = array_remove(u.events, e.id)
      from wanted w where u.cap = w.cap and u.subject = w.subject and u.bucket = w.bucket and e.id = any (u.events)
  )
  select array_agg(x.cap order by n.place) into above
    from generate_series(1, cardinality(phones)) as n(place)
    left join (select u.place, min(w.cap) as cap
                 from wanted w cross join unnest(w.places) as u(place)
                where exists (select from relevo.cap_uses c where c.cap = w.cap and c.subject = w.subject and c.bucket = w.bucket and e.id <> all (c.events))
                group by u.place) x on x.place = n.place;
  return above;
end
$$;

revoke all on function relevo.reserve_caps from public;

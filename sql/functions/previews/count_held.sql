-- Counts for some phones how many a batch would include, and how many of the others would wait for the end of quiet hours. It also counts those
-- whose caps have no room for the event, by what happens then.
create or replace function relevo.count_held(e relevo.notification_events, phones uuid[], at timestamptz) returns jsonb
  language plpgsql stable
as $$
declare
  dues timestamptz[] := case when exists (select from relevo.quiet_profiles) then relevo.quiet_dues(e, phones, at) end;
  capped bigint[] := '{}';
  to_digest bigint[] := '{}';
begin
  if relevo.is_batched(e) then
    return jsonb_build_object('capped', 0, 'waiting', 0, 'to_digest', 0, 'batched', coalesce(cardinality(phones), 0));
  end if;
  if exists (select from relevo.caps) and relevo.is_under_caps(e) then
    select coalesce(array_agg(x.place), '{}'), coalesce(array_agg(x.place) filter (where x.over = 'digest'), '{}') into capped, to_digest
      from (select distinct on (n.place) n.place, c.over from relevo.applicable_caps(e, phones, dues, at) w
              join relevo.cap_uses u on u.cap = w.cap and u.subject = w.subject and u.bucket = w.bucket
              join relevo.caps c on c.id = w.cap
              cross join unnest(w.places) as n(place)
             where cardinality(u.events) >= w.most order by n.place, w.cap) x;
  end if;
  return jsonb_build_object('capped', cardinality(capped) - cardinality(to_digest), 'to_digest', cardinality(to_digest), 'batched', 0, 'waiting', (select count(*) from unnest(dues) with ordinality as d(due_at, place)
                                                                          where d.due_at > at and d.place <> all (capped)));
end
$$;

revoke all on function relevo.count_held from public;

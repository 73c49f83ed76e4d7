-- Counts an event's first slice for the brake: for the stream as a whole unless it is personal, and for up to a hundred of its phones. Returns the
-- counts if one of them is above `enough`; fewer are too much for nobody. A stream that is not known yet begins here.
create or replace function relevo.count_slice(e relevo.notification_events, origin_of text, of_stream bigint, of_release int, is_held boolean,
    due timestamptz, phones uuid[], enough int, out counted uuid[], out in_hour float8[], out busiest_day int[])
  language plpgsql volatile
as $$
#variable_conflict use_column
declare
  stream bigint := of_stream;
  release int := of_release;
  was_held boolean := is_held;
  watched uuid[] := case when e.audience <> 'installations' then '{00000000-0000-0000-0000-000000000000}'::uuid[] else '{}' end
    || case when cardinality(phones) <= 100 then phones else array(select u.phone from unnest(phones) as u(phone) order by u.phone limit 100) end;
begin
  if stream is null then
    insert into relevo.event_streams (event_type, origin, known_since) values (e.event_type, origin_of, due)
    on conflict (event_type, origin) do nothing;
    select s.id, s.releases, exists (select from relevo.held_events h where h.event_id = e.id) into stream, release, was_held
      from relevo.event_streams s where s.event_type = e.event_type and s.origin = origin_of;
  end if;
  if relevo.count_event(stream, release, was_held, due, watched) > enough then
    select array_agg(c.installation_id), array_agg(relevo.count_of_hour(c.hour_at, c.in_hour, c.hour_before, due)), array_agg(c.busiest_day)
      into counted, in_hour, busiest_day
      from relevo.event_counts c where c.stream_id = stream and c.installation_id = any (watched);
  end if;
end
$$;

revoke all on function relevo.count_slice from public;

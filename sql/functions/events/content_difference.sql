-- Returns in what an event differs from the one that is there, whose hash is another; null if they say the same nevertheless.
create or replace function relevo.content_difference(event jsonb, id_of_event bigint) returns text
  language plpgsql
as $$
declare
  old relevo.notification_events;
  hashes text;
  tried bigint;
  found_out text[];
  at timestamptz;
  until timestamptz;
begin
  select n.* into old from relevo.notification_events n where n.id = id_of_event;
  select coalesce(old.content_hash, (select k.content_hash from relevo.event_keys k where k.event_id = id_of_event)) into hashes;
  -- the form of hashes before 0.3
  if strpos(hashes, encode(sha256(convert_to(jsonb_strip_nulls(event - array['on_conflict', 'project', 'traceparent'])::text, 'UTF8')), 'hex')) > 0 then
    return null;
  end if;
  if old.id is null then
    return '; it was archived, so what differs is not known';
  end if;
  at := relevo.event_time(event, 'scheduled_at', null);
  until := coalesce(relevo.event_time(event, 'deadline_at', null), old.scheduled_at + interval '1 second' * coalesce(
    (event ->> 'ttl_s')::numeric::int, (select t.ttl_s from relevo.event_types t where t.event_type = event ->> 'type')));
  begin -- written as a new one would be, and undone
    select w.event_id into tried from relevo.write_events(jsonb_build_array(
      event - array['scheduled_at', 'deadline_at', 'ttl_s'] || jsonb_build_object('key', 'compared ' || gen_random_uuid()))) w;
    select relevo.name_differences(relevo.event_said(old), relevo.event_said(n)) into found_out
      from relevo.notification_events n where n.id = tried;
    raise exception using errcode = 'RLV00', message = 'undone';
  exception when sqlstate 'RLV00' then
    null;
  end;
  found_out := found_out || case when coalesce(at, old.created_at) <> old.scheduled_at then array['scheduled_at differs'] end
                         || case when until is distinct from old.deadline_at then array['deadline_at differs'] end;
  return ': ' || array_to_string(nullif(found_out, '{}'), '; ');
end
$$;

revoke all on function relevo.content_difference from public;

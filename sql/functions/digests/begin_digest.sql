-- Returns the event by which a slot that closes is told, written now if this is its first slice, or the former one's month was sealed.
-- It is fanned out from the beginning: its deliveries are made by the closing of the slot.
create or replace function relevo.begin_digest(s relevo.digest_slots, of_id bigint, at timestamptz) returns relevo.notification_events
  language plpgsql volatile
as $$
declare
  e relevo.notification_events;
  words int := (select max(w.version) from relevo.wordings w where w.event_type = 'relevo.digest');
begin
  if s.event_id is not null then
    select n.* into e from relevo.notification_events n where n.id = s.event_id;
    return e;
  end if;
  perform relevo.ensure_partitions((at at time zone 'UTC')::date, 1);
  if relevo.hold_open(array[(at at time zone 'UTC')::date]) = '{}' then
    raise exception 'the month of % is sealed: nothing can be told in it', (at at time zone 'UTC')::date;
  end if;
  insert into relevo.notification_events (id, event_type, event_key, title, data, audience, content_hash, state, project, scheduled_at, created_at, event_day,
                                          fanout_started_at, fanout_finished_at, fanout_upto, arguments, wording, texts)
  values (of_id, 'relevo.digest', format('%s %s %s %s', to_char(s.closes_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI"Z"'), s.delivery, s.zone, of_id),
          'Digest', jsonb_build_object('digest', s.delivery), 'installations', md5(s.project || s.delivery || s.zone || s.closes_at), 'fanned', s.project,
          least(s.closes_at, at), least(s.closes_at, at), (at at time zone 'UTC')::date, at, at, (select coalesce(max(i.seq), 0) from relevo.device_installations i),
          case when words is not null then '{}'::jsonb end, words, case when words is not null then '{}'::jsonb end)
  returning * into e;
  insert into relevo.digests (event_id, project, delivery, zone, closed_at, made_at) values (e.id, s.project, s.delivery, s.zone, s.closes_at, at);
  return e;
end
$$;

revoke all on function relevo.begin_digest from public;

-- Replaces the content of an event that has not started yet, found by its type and key, in its project if it names one.
create or replace function relevo.change(event jsonb) returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  old relevo.notification_events;
  tried record;
begin
  perform relevo.check_event(event);
  if starts_with(event ->> 'type', 'relevo.') then
    perform relevo.refuse('type must not begin with relevo., which is for Relevo itself');
  end if;
  select n.* into old from relevo.notification_events n
   where n.id = relevo.event_id_in_project(event ->> 'type', event ->> 'key', event ->> 'project') and n.state = 'waiting' and n.event_day is null for update;
  if not found then
    return false;
  end if;
  -- written as a new one would be, and then put in the old one's place
  select w.* into tried from relevo.write_events(jsonb_build_array(event || jsonb_build_object('key', 'changed ' || gen_random_uuid()))) w;
  update relevo.notification_events e
     set licitacion_id = n.licitacion_id, title = n.title, body = n.body, data = n.data, push = n.push, audience = n.audience, category = n.category,
         lane = n.lane, at_most_once = n.at_most_once, scheduled_at = n.scheduled_at, deadline_at = n.deadline_at, match_topics = n.match_topics,
         match_rubros = n.match_rubros, match_region = n.match_region, match_tipo = n.match_tipo, match_monto = n.match_monto,
         match_moneda = n.match_moneda, match_words = n.match_words, match_where = n.match_where, collapse = n.collapse, opens = n.opens, unread_badge = n.unread_badge, batch = n.batch, traceparent = coalesce(n.traceparent, e.traceparent), updated_at = now(),
         arguments = n.arguments, texts = null, wording = null, turn_at = n.turn_at,
         -- what it said before is known as the same event, too: at first, and the last nine times
         content_hash = concat_ws(' ', relevo.content_hash(event, n.scheduled_at, relevo.event_time(event, 'deadline_at', null)), left(old.content_hash, 8 * 65 - 1), case when length(old.content_hash) >= 8 * 65 then right(old.content_hash, 64) end)
    from relevo.notification_events n
   where e.id = old.id and n.id = tried.event_id;
  delete from relevo.event_audience where event_id = old.id;
  delete from relevo.event_owners where event_id = old.id;
  update relevo.event_audience set event_id = old.id where event_id = tried.event_id;
  update relevo.event_owners set event_id = old.id where event_id = tried.event_id;
  delete from relevo.notification_events where id = tried.event_id;
  perform relevo.wake('fanout');
  return true;
end
$$;

revoke all on function relevo.change from public;

-- Returns the event that tells a batch: one event says what it said itself, and several are told by the texts of the type with `.batch` behind its name, else as the
-- newest says, else by its title and how many others there are. What it does not say here is as with the newest.
create or replace function relevo.batch_event(b relevo.batches, at timestamptz) returns relevo.notification_events
  language plpgsql stable
as $$
declare
  e relevo.notification_events;
  total int := cardinality(b.events);
  names text[] := array(select left(coalesce(nullif(n.title, ''), n.body), 200) from unnest(b.events[total - 2:]) with ordinality as u(id, place)
                          join relevo.notification_events n on n.id = u.id order by u.place desc);
  about jsonb := jsonb_build_object('batch', jsonb_build_object('key', b.key, 'total', total, 'events', to_jsonb(b.events[total - 9:])));
begin
  select n.* into e from relevo.notification_events n where n.id = b.events[total];
  if total > 1 then
    e.event_type := b.event_type || '.batch';
    e.texts := null;
    e.wording := null;
    if exists (select from relevo.wordings w where w.event_type = e.event_type) then
      e.arguments := coalesce(e.arguments, '{}') || jsonb_build_object('count', total, 'others', total - 1, 'more', greatest(total - 3, 0),
                       'first', names[1], 'second', coalesce(names[2], ''), 'third', coalesce(names[3], ''));
      e.title := '';
      e.body := '';
    else
      e.arguments := null;
      e.title := left(coalesce(relevo.batch_text(e.batch ->> 'title', total, names), e.title || ' (+' || total - 1 || ')'), 500);
      e.body := left(coalesce(relevo.batch_text(e.batch ->> 'body', total, names), e.body), 2000);
    end if;
  end if;
  e.data := case when relevo.push_bytes(e.title, e.body, e.data || about, e.push) > 4096 then about else e.data || about end;
  e.deadline_at := (select case when count(*) = count(n.deadline_at) then max(n.deadline_at) end from relevo.notification_events n where n.id = any (b.events));
  e.id := b.event_id;
  e.event_key := 'batch:' || b.id;
  e.batch_id := b.id;
  e.project := nullif(b.project, '');
  e.scheduled_at := at;
  e.turn_at := case when e.arguments is not null and e.texts is null then timestamptz '2300-01-01Z' end; -- until it has its texts
  return e;
end
$$;

revoke all on function relevo.batch_event from public;

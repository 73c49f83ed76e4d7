-- Returns the event that a batch sends. One event keeps its own texts. Several use the texts of the type with `.batch` behind its name, else those
-- given by the newest event, else its title with the number of others. Other fields are those of the newest; fields that are too large for a push
-- are left out, the data first. Unless it is `worded`, no texts of the type with `.batch` are used.
create or replace function relevo.batch_event(b relevo.batches, at timestamptz, worded boolean) returns relevo.notification_events
  language plpgsql stable
as $$
declare
  e relevo.notification_events;
  total int := cardinality(b.events);
  names text[] := array(select left(coalesce(nullif(n.title, ''), n.body), 200) from unnest(b.events[total - 2:]) with ordinality as u(id, place)
                          join relevo.notification_events n on n.id = u.id order by u.place desc);
  about jsonb := jsonb_build_object('batch', jsonb_build_object('key', b.key, 'total', total, 'events', to_jsonb(b.events[total - 9:])));
  given jsonb;
  room int := 4096; -- for a push without the texts that it gets later
  texts_bytes int;
begin
  select n.* into e from relevo.notification_events n where n.id = b.events[total];
  if total > 1 then
    e.event_type := b.event_type || '.batch';
    given := coalesce(e.arguments, '{}') || jsonb_build_object('count', total, 'others', total - 1, 'more', greatest(total - 3, 0),
               'first', names[1], 'second', coalesce(names[2], ''), 'third', coalesce(names[3], ''));
    texts_bytes := (select max(w.bytes) from relevo.wordings w where worded and w.event_type = e.event_type and relevo.arguments_complaint(w.arguments, given) is null);
    e.texts := null;
    e.wording := null;
    e.arguments := case when texts_bytes is not null then given end;
    if texts_bytes is not null then
      e.title := '';
      e.body := '';
      room := room - texts_bytes - octet_length(given::text);
    else
      e.title := left(coalesce(relevo.batch_text(e.batch ->> 'title', total, names), case when e.title <> '' then e.title || ' (+' || total - 1 || ')' else '' end), 500);
      e.body := left(coalesce(relevo.batch_text(e.batch ->> 'body', total, names), e.body), 2000);
    end if;
  end if;
  e.data := case when relevo.push_bytes(e.title, e.body, e.data || about, e.push) > room then about else e.data || about end;
  e.body := left(e.body, greatest(length(e.body) - greatest(relevo.push_bytes(e.title, e.body, e.data, e.push) - room, 0), 0));
  e.title := left(e.title, greatest(length(e.title) - greatest(relevo.push_bytes(e.title, e.body, e.data, e.push) - room, 0), 0));
  e.deadline_at := (select case when count(*) = count(n.deadline_at) then max(n.deadline_at) end from relevo.notification_events n where n.id = any (b.events));
  e.id := b.event_id;
  e.event_key := 'batch:' || b.id || case when exists (select from relevo.notification_events n -- an app may have an event of that name
                                                        where n.event_type = e.event_type and n.event_key = 'batch:' || b.id and coalesce(n.project, '') = b.project) then ':' || b.event_id else '' end;
  e.batch_id := b.id;
  e.project := nullif(b.project, '');
  e.scheduled_at := at;
  e.turn_at := case when e.arguments is not null and e.texts is null then timestamptz '2300-01-01Z' end; -- until it has its texts
  return e;
end
$$;

revoke all on function relevo.batch_event from public;

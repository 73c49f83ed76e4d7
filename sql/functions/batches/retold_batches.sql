-- Returns the present content of the pushes of closed batches of which an event ended or was handled since: the remaining events, `total` of them,
-- in the texts of the closing; 0 means that none remains. `words_of` is the type of the texts, if it is not the event's.
create or replace function relevo.retold_batches(of_events bigint[], given_at timestamptz)
  returns table (event_id bigint, total int, event_type text, words_of text, title text, body text, data jsonb, push jsonb, wording int, texts jsonb, arguments jsonb)
  language plpgsql stable
as $$
#variable_conflict use_column
declare
  at timestamptz := relevo.now(given_at);
  told record;
  b relevo.batches;
  e relevo.notification_events;
begin
  for told in
    select n.id, n.event_type, n.wording, l.b, l.events
      from (select n.id, n.event_type, n.wording, n.batch_id from relevo.notification_events n where n.id = any (of_events) and n.batch_id is not null offset 0) n
      cross join lateral (select x as b, relevo.left_of_batch(x, at) as events, x.events as closed_with from relevo.batches x where x.id = n.batch_id and x.event_id = n.id offset 0) l
     where l.events is distinct from l.closed_with
  loop
    event_id := told.id;
    event_type := told.event_type;
    total := coalesce(cardinality(told.events), 0);
    if total > 0 then
      b := told.b;
      b.events := told.events;
      e := relevo.batch_event(b, at, told.wording is not null);
      title := e.title;
      body := e.body;
      data := e.data;
      push := relevo.push_with_options(e.push, e.event_type, null, e.opens, e.unread_badge);
      words_of := nullif(e.event_type, told.event_type);
      wording := case when e.event_type = told.event_type and total > 1 then case when e.arguments is not null then told.wording end else e.wording end;
      texts := e.texts;
      arguments := case when wording is not null then e.arguments end;
    end if;
    return next;
  end loop;
end
$$;

revoke all on function relevo.retold_batches from public;

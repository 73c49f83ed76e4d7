-- Trigger: notes that an event may have finished, for `event.finished` news.
create or replace function relevo.note_event() returns trigger
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if relevo.is_news('event.finished') then
    insert into relevo.news_events (event_id) values (new.id);
  end if;
  return null;
end
$$;

revoke all on function relevo.note_event from public;

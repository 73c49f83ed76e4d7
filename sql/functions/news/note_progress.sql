-- Trigger: notes the events whose counts changed, for `event.finished` news.
create or replace function relevo.note_progress() returns trigger
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if relevo.is_news('event.finished') then
    insert into relevo.news_events (event_id) select distinct g.event_id from gone g;
  end if;
  return null;
end
$$;

revoke all on function relevo.note_progress from public;

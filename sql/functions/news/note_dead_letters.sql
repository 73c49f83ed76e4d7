-- Trigger: writes a `delivery.failed` news item for each new dead letter, if somebody subscribed to that kind.
create or replace function relevo.note_dead_letters() returns trigger
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if relevo.is_news('delivery.failed') then
    insert into relevo.news_inbox (at, kind, project, event_id, delivery_id, installation_id, data)
    select c.died_at, 'delivery.failed', relevo.name_of_project(c.project), c.event_id, c.delivery_id, d.installation_id,
           jsonb_build_object('event_type', d.event_type, 'error_code', c.error_code, 'attempts', d.attempt_count)
      from come c
      cross join lateral (select d.installation_id, d.event_type, d.attempt_count from relevo.notification_deliveries d
                           where d.event_day = c.event_day and d.id = c.delivery_id offset 0) d
     where d.event_type <> 'relevo.news' -- else a receiver that fails would get ever more
     order by c.event_day, c.delivery_id;
  end if;
  return null;
end
$$;

revoke all on function relevo.note_dead_letters from public;

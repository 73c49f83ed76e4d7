-- Trigger: writes down by how much the sums of events changed; only ever adds rows, so that nobody waits for anybody.
create or replace function relevo.count_deliveries() returns trigger
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  news bigint[] := '{}';
  any_news boolean := exists (select from relevo.notification_events e where e.event_type = 'relevo.news')
                   or exists (select from relevo.event_keys k where k.event_type = 'relevo.news');
begin
  if tg_op = 'DELETE' then
    if any_news then
      news := relevo.news_among(array(select o.event_id from old_rows o));
    end if;
    insert into relevo.delivery_counts (status, deliveries)
    select o.status, -sum(o.deliveries) from old_rows o left join unnest(news) as n(id) on n.id = o.event_id
     where n.id is null group by o.status;
  elsif tg_op = 'INSERT' then
    if any_news then
      news := relevo.news_among(array(select c.event_id from new_rows c));
    end if;
    insert into relevo.delivery_counts (status, deliveries)
    select c.status, sum(c.deliveries) from new_rows c left join unnest(news) as n(id) on n.id = c.event_id
     where n.id is null group by c.status;
  else
    if any_news then
      news := relevo.news_among(array(select c.event_id from new_rows c));
    end if;
    insert into relevo.delivery_counts (status, deliveries)
    select c.status, sum(c.n)
      from (select c.event_id, c.status, c.deliveries as n from new_rows c union all select o.event_id, o.status, -o.deliveries from old_rows o) c
      left join unnest(news) as n(id) on n.id = c.event_id
     where n.id is null
     group by c.status having sum(c.n) <> 0;
  end if;
  return null;
end
$$;

revoke all on function relevo.count_deliveries from public;

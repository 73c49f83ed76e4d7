-- needs relevo 0.2.0
-- How many deliveries there are of each status tells of pushes: news to webhooks were counted among them.

-- Tells which of some events carry news; one that is archived in this very statement has left its type among the keys.
create function relevo.news_among(ids bigint[]) returns bigint[]
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select coalesce(array_agg(u.id), '{}')
    from (select distinct u.id from unnest(ids) as u(id)) u
    left join lateral (select e.event_type from relevo.notification_events e where e.id = u.id offset 0) e on true
    left join lateral (select k.event_type from relevo.event_keys k where k.event_id = u.id offset 0) k on true
   where coalesce(e.event_type, k.event_type) = 'relevo.news'
$$;

revoke all on function relevo.news_among(bigint[]) from public;

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

-- What was counted so far is taken out, while nobody counts.
lock table relevo.event_progress in share row exclusive mode;
insert into relevo.delivery_counts (status, deliveries)
select p.status, -sum(p.deliveries)
  from relevo.notification_events e join relevo.event_progress p on p.event_id = e.id
 where e.event_type = 'relevo.news'
 group by p.status having sum(p.deliveries) <> 0;

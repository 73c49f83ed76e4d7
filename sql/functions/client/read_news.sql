-- Returns the next news of a subscription, after a position or after what it has acknowledged, with phone and key as far as still known.
create or replace function relevo.read_news(of_subscription text, after bigint default null, most int default 100)
  returns table (news_position bigint, at timestamptz, kind text, project text, event_id bigint, event_key text, delivery_id bigint,
                 installation_id uuid, owner text, data jsonb)
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  behind bigint;
begin
  if most is null or most not between 1 and 1000 then
    perform relevo.refuse('limit must be between 1 and 1000');
  end if;
  select greatest(coalesce(read_news.after, c.position), s.tail) into behind
    from relevo.news_subscriptions s join relevo.news_cursors c on c.subscription = s.name
   where s.name = of_subscription;
  if not found then
    perform relevo.refuse(format('there is no subscription %s; subscribe first', left(of_subscription, 50)));
  end if;
  return query
  select n.position, n.at, n.kind, n.project, n.event_id, e.event_key, n.delivery_id, n.installation_id, i.owner, n.data
    from relevo.news n
    left join relevo.notification_events e on e.id = n.event_id
    left join relevo.device_installations i on i.installation_id = n.installation_id
   where n.subscription = of_subscription and n.position > behind
     and not exists (select from relevo.news_subscriptions s where s.name = of_subscription and s.paused_at is not null)
   order by n.position
   limit most;
end
$$;

revoke all on function relevo.read_news from public;

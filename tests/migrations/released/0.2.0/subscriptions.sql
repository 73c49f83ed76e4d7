-- name: list_subscriptions
-- Lists the subscriptions, with how much each has waiting and has lost.
select s.name, s.kinds, s.project, s.webhook, s.paused_at, s.head, c.position as acknowledged, s.head - greatest(c.position, s.tail) as waiting,
       s.dropped, s.dropped_at, s.created_at,
       exists (select from relevo.device_installations i
                where i.token = s.webhook and not (i.provider = 'webhook' and relevo.may_receive(i))) as unreachable,
       (select n.at from relevo.news n where n.subscription = s.name and n.position = greatest(c.position, s.tail) + 1) as oldest_at
  from relevo.news_subscriptions s
  join relevo.news_cursors c on c.subscription = s.name
 order by s.name;

-- name: pause_subscription
-- Stops handing out a subscription's news, or goes on; returns nothing if there is none.
update relevo.news_subscriptions s set paused_at = case when %(paused)s then coalesce(s.paused_at, now()) end
 where s.name = %(name)s returning s.name;

-- name: remove_subscription
-- Ends a subscription and forgets its news; returns nothing if there is none.
delete from relevo.news_subscriptions s where s.name = %(name)s returning s.name;

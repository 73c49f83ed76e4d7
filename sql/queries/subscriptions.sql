-- name: list_subscriptions
-- Lists the subscriptions with their waiting and dropped news, and the state of their webhooks: how many news are being sent and since when the
-- oldest, and whether the breaker is open and why. It also shows what the webhook refused for good of late, unless it accepted something since.
select s.name, s.kinds, s.project, s.webhook, s.paused_at, s.head, c.position as acknowledged, s.head - greatest(c.position, s.tail) as waiting,
       s.dropped, s.dropped_at, s.created_at,
       exists (select from relevo.device_installations i
                where i.project = s.webhook and i.provider = 'relevo.news' and i.for_news and not relevo.may_receive(i)) as unreachable,
       t.on_their_way, t.oldest_s, p.breaker_reason, case when r.is_newest then r.error_message end as refused,
       (select n.at from relevo.news n where n.subscription = s.name and n.position = greatest(c.position, s.tail) + 1) as oldest_at
  from relevo.news_subscriptions s
  join relevo.news_cursors c on c.subscription = s.name
  left join relevo.projects p on p.project = relevo.sending_project('relevo.news', s.webhook)
  cross join lateral (select coalesce(sum(cardinality(q.ids)), 0)::int as on_their_way, extract(epoch from now() - min(q.created_at))::float8 as oldest_s
                        from (select q.created_at, q.ids from relevo.due_chunks q
                               where q.project = relevo.sending_project('relevo.news', s.webhook) and q.lane = 'urgent'
                               order by q.due_at limit %(most)s) q) t
  left join lateral (select coalesce(d.last_error_message, l.error_code) as error_message, not exists (
                              select from relevo.push_tallies y where y.project = l.project and y.at > l.died_at and y.sent > 0
                              union all
                              select from relevo.push_minutes y where y.project = l.project and y.minute >= l.died_at and y.sent > 0) as is_newest
                       from relevo.dead_letters l
                       left join relevo.notification_deliveries d on d.event_day = l.event_day and d.id = l.delivery_id
                      where l.error_code in ('RefusedAddress', 'UnknownAddress', 'HTTP_410')
                        and l.project = relevo.sending_project('relevo.news', s.webhook) and l.died_at > now() - interval '1 day'
                      order by l.died_at desc limit 1) r on true
 order by s.name;

-- name: pause_subscription
-- Stops handing out a subscription's news, or goes on; returns nothing if there is none.
update relevo.news_subscriptions s set paused_at = case when %(paused)s then coalesce(s.paused_at, now()) end
 where s.name = %(name)s returning s.name;

-- name: remove_subscription
-- Ends a subscription and forgets its news; returns nothing if there is none.
delete from relevo.news_subscriptions s where s.name = %(name)s returning s.name;

-- name: find_subscription
-- Returns the first of some names that a subscription to news has; for a caller of one project, of that project's.
select s.name from relevo.news_subscriptions s
 where s.name = any (%(names)s::text[]) and (%(project)s::text is null or s.project = %(project)s)
 order by array_position(%(names)s::text[], s.name) limit 1;

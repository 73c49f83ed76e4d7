-- name: is_anything_to_tell
-- Returns whether somebody subscribed to news, or some are left over.
select exists (select from relevo.news_subscriptions) or exists (select from relevo.news_inbox) or exists (select from relevo.news_events);

-- name: take_changed_events
-- Takes a batch of the events that changed and may have finished; what changes from now on is noted anew.
delete from relevo.news_events n
 where n.id = any (array(select o.id from relevo.news_events o order by o.id limit %(limit)s for update skip locked))
returning n.event_id;

-- name: tell_finished_events
-- Tells of those events of which nothing is left to send or to confirm, and how their deliveries ended. A statement of its own: it sees
-- every change whose note was taken, and takes the notes of all that it sees.
with taken as (
  delete from relevo.news_events n where n.event_id = any (%(events)s::bigint[])
)
insert into relevo.news_inbox (at, kind, event_id, data)
select relevo.now(%(now)s), 'event.finished', e.id,
       jsonb_build_object('event_type', e.event_type, 'state', e.state, 'deliveries', c.deliveries)
  from (select distinct u.id from unnest(%(events)s::bigint[]) as u(id) order by u.id) g
  cross join lateral (select * from relevo.notification_events e where e.id = g.id offset 0) e
  cross join lateral (
    select coalesce(jsonb_object_agg(s.status, s.n) filter (where s.n <> 0), '{}') as deliveries,
           coalesce(bool_or(s.n <> 0 and s.status in ('pending', 'retryable', 'sent')), false) as any_open
      from (select p.status, p.deliveries as n from relevo.event_progress p where p.event_id = e.id) s) c
 where e.event_type <> 'relevo.news' and not c.any_open
   and not exists (select from relevo.event_progress_deltas d where d.event_id = e.id) -- whoever folds them notes it again
   and (e.state = 'fanned' or (e.ended_at is not null and (e.swept_at is not null or e.event_day is null)));

-- name: share_out_news
-- Gives each subscription its share of a batch of news, in numbers without gaps; one replica at a time, so that no lower number comes later.
with asked as materialized (
  select s.name, s.kinds, s.project, s.head from relevo.news_subscriptions s order by s.name for no key update
), taken as materialized (
  delete from relevo.news_inbox n
   where n.id = any (array(select o.id from relevo.news_inbox o where (select count(*) from asked) >= 0
                            order by o.id limit %(limit)s for update skip locked))
  returning n.*
), share as materialized (
  select a.name, a.head + row_number() over (partition by a.name order by t.id) as position, t.*
    from asked a
    join taken t on t.kind = any (a.kinds) and (a.project is null or a.project = t.project)
), given as (
  insert into relevo.news (subscription, position, at, kind, project, event_id, delivery_id, installation_id, data)
  select s.name, s.position, s.at, s.kind, s.project, s.event_id, s.delivery_id, s.installation_id, s.data from share s
), moved as (
  update relevo.news_subscriptions s set head = m.head
    from (select h.name, max(h.position) as head from share h group by h.name) m
   where s.name = m.name
)
select (select count(*) from taken)::int, (select count(*) from share)::int;

-- name: put_off_event
-- Puts the first of the events that changed behind the others; returns its number before, and its number now.
with first as (
  delete from relevo.news_events n
   where n.id = (select o.id from relevo.news_events o order by o.id limit 1 for update skip locked)
  returning n.id, n.event_id
), last as (
  insert into relevo.news_events (event_id) select f.event_id from first f
  returning id
)
select f.id, l.id from first f, last l;

-- name: put_off_news
-- Puts the first of the news that are to be shared out behind the others; returns its number before, and its number now.
with first as (
  delete from relevo.news_inbox n
   where n.id = (select o.id from relevo.news_inbox o order by o.id limit 1 for update skip locked)
  returning n.*
), last as (
  insert into relevo.news_inbox (at, kind, project, event_id, delivery_id, installation_id, data)
  select f.at, f.kind, f.project, f.event_id, f.delivery_id, f.installation_id, f.data from first f
  returning id
)
select f.id, l.id from first f, last l;

-- name: trim_news
-- Forgets a batch of each subscription's news that were acknowledged, are too old, or too many; returns how many went unread.
with bound as materialized (
  select s.name, s.tail, c.position as acknowledged,
         least(s.tail + %(limit)s, greatest(c.position, s.head - %(backlog)s, s.tail, coalesce((
           select max(n.position) from relevo.news n
            where n.subscription = s.name and n.position <= s.tail + %(limit)s
              and n.at < relevo.now(%(now)s) - %(retention_days)s * interval '1 day'), 0))) as new_tail
    from relevo.news_subscriptions s
    join relevo.news_cursors c on c.subscription = s.name
), due as materialized (
  select b.*, greatest(b.new_tail - greatest(b.tail, b.acknowledged), 0) as unread from bound b where b.new_tail > b.tail
), gone as (
  delete from relevo.news n using due d where n.subscription = d.name and n.position > d.tail and n.position <= d.new_tail
), noted as (
  update relevo.news_subscriptions s
     set tail = d.new_tail, dropped = s.dropped + d.unread,
         dropped_at = case when d.unread > 0 then relevo.now(%(now)s) else s.dropped_at end
    from due d where s.name = d.name
)
select d.name, d.unread, d.new_tail - d.tail >= %(limit)s as more from due d;

-- name: list_webhooks
-- Names the subscriptions that have news to send to their webhook.
select s.name
  from relevo.news_subscriptions s
  join relevo.news_cursors c on c.subscription = s.name
 where s.webhook is not null and s.paused_at is null and greatest(c.position, s.tail) < s.head
 order by s.name;

-- name: pick_webhook
-- Keeps others from a subscription's news while some are sent on their way, and returns its webhook.
select s.webhook
  from relevo.news_cursors c
  join relevo.news_subscriptions s on s.name = c.subscription
 where c.subscription = %(name)s and s.webhook is not null and s.paused_at is null
   for no key update of c skip locked;

-- name: register_webhook
-- Registers a webhook's installation for news, apart from what the app may have registered under its name; its token is nothing to be named by.
insert into relevo.device_installations (token, provider, project, for_news)
select 'news:' || gen_random_uuid(), 'relevo.news', %(webhook)s, true
 where not exists (select from relevo.device_installations i where i.project = %(webhook)s and i.provider = 'relevo.news' and i.for_news);

-- name: find_webhook
-- Returns where a webhook is registered for news and among which deliveries its own wait; nothing if it may get none.
select i.installation_id, relevo.sending_project(i.provider, i.project, i.part)
  from relevo.device_installations i
 where i.project = %(webhook)s and i.provider = 'relevo.news' and i.for_news and relevo.may_receive(i)
 order by i.seq
 limit 1;

-- name: enqueue_news
-- Makes events of a subscription's next news, as many as may wait to be sent at once, and moves its cursor behind them.
with room as materialized (
  select least(%(limit)s, %(most_open)s - count(*))::int as room
    from (select from relevo.due_chunks q cross join unnest(q.ids) where q.project = %(project)s and q.event_type = 'relevo.news'
          union all
          select from relevo.notification_events e -- or wait for their fan-out
           where e.state in ('waiting', 'fanning') and e.lane = 'urgent' and e.event_type = 'relevo.news'
             and starts_with(e.event_key, (select s.id from relevo.news_subscriptions s where s.name = %(name)s)::text)
          limit %(most_open)s) q
), next as materialized (
  select s.name, s.id as subscription_id, s.webhook, n.*
    from relevo.news_subscriptions s
    join relevo.news_cursors c on c.subscription = s.name
    cross join lateral (select n.position, n.at, n.kind, n.project, n.event_id, n.delivery_id, n.installation_id, n.data from relevo.news n
                         where n.subscription = s.name and n.position > greatest(c.position, s.tail)
                         order by n.position limit greatest((select r.room from room r), 0)) n
   where s.name = %(name)s
), made as materialized (
  select e.created
    from (select jsonb_agg(jsonb_build_object(
                   'type', 'relevo.news', 'key', n.subscription_id || '.' || n.position, 'title', n.kind, 'lane', 'urgent',
                   'audience', 'installations', 'installations', jsonb_build_array(%(installation_id)s::text),
                   'data', jsonb_strip_nulls(jsonb_build_object(
                     'kind', n.kind, 'webhook', n.webhook, 'subscription', n.name, 'position', n.position, 'at', n.at, 'project', n.project, 'event_id', n.event_id,
                     'delivery_id', n.delivery_id, 'installation_id', n.installation_id) || n.data)) order by n.position) as events
            from next n having count(*) > 0) g
    cross join lateral relevo.enqueue_any_type(g.events) e
), moved as (
  update relevo.news_cursors c set position = m.position
    from (select max(n.position) as position from next n having count(*) > 0) m
   where c.subscription = %(name)s
)
select count(*)::int from made;

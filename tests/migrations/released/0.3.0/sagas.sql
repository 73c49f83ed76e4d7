-- What support people ask: what became of an event, of one push, of one phone. Each reads a page's worth, however much there is.

-- name: list_recent_events
-- Lists events, newest first, that fit, news only if asked for, out of so many that are looked at, with how far they are; and where it stopped looking.
with looked as materialized (
  select e.id, e.event_type, e.state, e.project
    from relevo.notification_events e
   where e.id < coalesce(%(before)s::bigint, 9223372036854775807)
   order by e.id desc
   limit %(look_at)s
), fitting as materialized (
  select l.id
    from looked l
   where (%(event_type)s::text is null and l.event_type <> 'relevo.news' or l.event_type = %(event_type)s)
     and (%(state)s::text is null or l.state = %(state)s)
     and (%(project)s::text is null or l.project = %(project)s)
   order by l.id desc
   limit %(limit)s
), ends as materialized (
  select min(l.id) as last_looked, count(*)::int as looked_at from looked l
)
select e.id, e.event_type, e.event_key, e.state, left(e.title, 200) as title, left(e.body, 200) as body, e.audience, e.project, e.created_at, e.scheduled_at,
       e.deliveries_created, coalesce(p.deliveries, '{}') as deliveries, ends.last_looked, ends.looked_at
  from ends
  left join fitting f on true
  left join lateral (select e.* from relevo.notification_events e where e.id = f.id) e on true
  left join lateral (select jsonb_object_agg(s.status, s.n) as deliveries
                       from (select x.status, sum(x.deliveries) as n
                               from (select g.status, g.deliveries from relevo.event_progress g where g.event_id = f.id
                                     union all
                                     select d.status, d.deliveries from relevo.event_progress_deltas d where d.event_id = f.id) x
                              group by x.status having sum(x.deliveries) <> 0) s) p on true
 order by e.id desc;

-- name: list_event_types
-- Lists the types of events there are but for news, along their index.
with recursive kind as (
  (select e.event_type, 1 as n from relevo.notification_events e order by e.event_type limit 1)
  union all
  select f.event_type, k.n + 1
    from kind k
    cross join lateral (select e.event_type from relevo.notification_events e
                         where e.event_type > k.event_type order by e.event_type limit 1) f
   where k.n < %(limit)s
)
select k.event_type from kind k where k.event_type <> 'relevo.news';

-- name: read_saga
-- Reads all that is known of one event beside its deliveries: what it is about, where it came from, who is meant, what held it.
select now() as now, e.id, e.event_type, e.event_key, e.state, e.title, e.body, e.audience, e.project, e.category, e.lane, e.at_most_once,
       e.created_at, e.scheduled_at, e.deadline_at, e.event_day, e.fanout_started_at, e.fanout_finished_at, e.targets_selected, e.deliveries_created,
       e.first_sent_at, e.ended_at, e.end_reason, e.swept_at, e.match_topics,
       l.external_id, left(l.nombre, 300) as nombre, l.organismo, l.publicada_at, r.source, r.claimed_at as first_seen_at,
       h.held_at, h.reason as held_reason, h.released_at, t.held_at as repeats_held_at, t.reason as repeats_reason,
       (select f.former_event_id from relevo.event_followers f where f.event_id = e.id order by f.former_event_id limit 1) as former_event_id,
       (select count(*)::int from (select from relevo.event_audience a where a.event_id = e.id limit %(most)s) x) as named,
       array(select o.owner from relevo.event_owners o where o.event_id = e.id order by o.owner limit 10) as owners
  from relevo.notification_events e
  left join relevo.licitaciones l on l.id = e.licitacion_id
  left join relevo.licitacion_registry r on r.namespace = l.namespace and r.external_id = l.external_id
  left join relevo.held_events h on h.event_id = e.id
  left join relevo.event_repeats t on t.event_id = e.id
 where e.id = %(event_id)s;

-- name: sum_event_sample
-- Tells of a bounded number of an event's deliveries when the last was tried and ended, how often one was tried at most, and of how many the
-- receipt, which came after the last attempt, told of an error.
select count(*)::int as looked_at, max(x.last_attempt_at) as last_attempt_at, max(x.completed_at) as last_completed_at,
       coalesce(max(x.attempt_count), 0)::int as most_attempts, count(*) filter (where x.receipt_failed)::int as receipts_failed,
       max(coalesce(x.completed_at, x.updated_at)) filter (where x.receipt_failed) as receipt_failed_at
  from (select d.last_attempt_at, d.completed_at, d.updated_at, d.attempt_count,
               d.status in ('retryable', 'failed', 'invalid', 'expired') and d.provider_receipt_id = d.provider_ticket_id
               and d.last_error_code is not null and coalesce(d.completed_at, d.updated_at) > d.last_attempt_at as receipt_failed
          from relevo.notification_deliveries d
         where d.event_day = %(event_day)s and d.notification_event_id = %(event_id)s
         order by d.installation_id
         limit %(most)s) x;

-- name: list_errors_of_event
-- Lists what went wrong in an event's deliveries, most frequent first: in a bounded number of its dead letters, of what is tried again, and
-- of all the others.
with seen as (
  select d.id, d.status, d.last_error_code, d.last_error_message
    from (select l.event_day, l.delivery_id from relevo.dead_letters l where l.event_id = %(event_id)s order by l.delivery_id limit 1000) l
    cross join lateral (select d.* from relevo.notification_deliveries d where d.event_day = l.event_day and d.id = l.delivery_id offset 0) d
  union
  select d.id, d.status, d.last_error_code, d.last_error_message
    from (select q.event_day, q.ids from relevo.due_chunks q where q.event_id = %(event_id)s and q.had_error limit 50) q
    cross join unnest(q.ids) as u(id)
    cross join lateral (select d.* from relevo.notification_deliveries d where d.event_day = q.event_day and d.id = u.id offset 0) d
  union
  select d.id, d.status, d.last_error_code, d.last_error_message
    from (select d.* from relevo.notification_deliveries d
           where d.event_day = %(event_day)s and d.notification_event_id = %(event_id)s
           order by d.installation_id
           limit %(most)s) d
)
select x.status, x.last_error_code, count(*)::int as deliveries, min(x.last_error_message) as example,
       case when x.status in ('pending', 'retryable')
            then (select min(q.due_at) from relevo.due_chunks q where q.event_id = %(event_id)s and q.had_error) end as next_attempt_at
  from seen x
 where x.last_error_code is not null
 group by x.status, x.last_error_code
 order by count(*) desc
 limit 10;

-- name: list_event_requests
-- Lists the requests in which an event's deliveries were sent, oldest first, out of so many that are looked at from a place on, with how many
-- of its deliveries each held, and of how many of those it is known that they were taken then, or not: once one was sent anew, only its last
-- ticket is kept, and of the requests before it what went wrong; and where the look ended. The deliveries of an event with many (by_key) are looked up one by one, those of others all at
-- once.
with known as materialized (
  select d.id, d.provider_ticket_id is not null as has_ticket, d.status, d.last_attempt_at
    from relevo.notification_deliveries d
   where not %(by_key)s and d.event_day = %(event_day)s and d.notification_event_id = %(event_id)s
   order by d.installation_id
   limit %(most)s
), looked as materialized (
  select r.id, r.journalled_at, r.answered_at, r.outcome, r.worker_id, r.days, r.ids
    from relevo.push_requests r
   where r.request_day between (%(since)s::timestamptz at time zone 'UTC')::date and (%(since)s::timestamptz at time zone 'UTC')::date + 1
     and (r.journalled_at, r.id) > (%(since)s::timestamptz, %(after)s::uuid) and r.journalled_at <= %(until)s
   order by r.journalled_at, r.id
   limit %(look_at)s
), pushes as materialized (
  select l.id as request_id, l.journalled_at, l.answered_at, l.outcome, u.id
    from looked l cross join unnest(l.days, l.ids) as u(event_day, id)
   where u.event_day = %(event_day)s
), own as (
  select p.*, k.has_ticket, k.status, k.last_attempt_at from pushes p join known k on k.id = p.id
  union all
  select p.*, d.has_ticket, d.status, d.last_attempt_at
    from pushes p
    cross join lateral (select d.notification_event_id, d.provider_ticket_id is not null as has_ticket, d.status, d.last_attempt_at
                          from relevo.notification_deliveries d
                         where %(by_key)s and d.event_day = %(event_day)s and d.id = p.id offset 0) d
   where d.notification_event_id = %(event_id)s
), last as ( -- a ticket is of the last request, or of the only one that was answered; of an earlier one nothing is known any more
  select o.*, o.last_attempt_at <= coalesce(o.answered_at, o.journalled_at) + interval '5 minutes'
              and (count(*) filter (where coalesce(o.outcome, 'answered') = 'answered') over (partition by o.id) = 1
                   or o.status in ('sent', 'ok', 'unconfirmed')
                      and row_number() over (partition by o.id order by o.journalled_at desc, o.request_id) = 1) as has_its_ticket,
         lead(o.journalled_at, 1, 'infinity') over (partition by o.id order by o.journalled_at, o.request_id desc) as next_at
    from own o
), told as ( -- of one that was sent anew: refused then, or taken and refused by its receipt, before the next
  select x.*, case when x.has_ticket and x.has_its_ticket then 'taken' when not x.has_ticket then 'refused' else
           (select case when bool_or(f.request_id = x.request_id) then 'refused'
                        when bool_or(f.found_by = 'receipt' and f.at > x.journalled_at and f.at <= x.next_at) then 'taken' end
              from relevo.failed_attempts f where f.event_day = %(event_day)s and f.delivery_id = x.id) end as became
    from last x
), held as materialized (
  select x.request_id, min(x.id) as first_id, count(*)::int as of_event, count(*) filter (where x.became = 'taken')::int as taken,
         count(*) filter (where x.became = 'refused')::int as refused
    from told x group by x.request_id
)
select l.id, l.journalled_at, l.answered_at, l.outcome, l.worker_id, cardinality(l.ids) as pushes, h.of_event, h.taken, h.refused, ends.looked_at, ends.found,
       ends.last_at, ends.last_id, -- of a request that failed as a whole, what was said of one of them was said of all
       (select f.error_code from relevo.failed_attempts f
         where l.outcome <> 'answered' and f.event_day = %(event_day)s and f.delivery_id = h.first_id and f.request_id = l.id limit 1) as said_code
  from (select count(*)::int as looked_at, (select count(*)::int from held) as found, max(l.journalled_at) as last_at,
               (select l.id from looked l order by l.journalled_at desc, l.id desc limit 1) as last_id
          from looked l) ends
  left join (held h join looked l on l.id = h.request_id) on true
 order by l.journalled_at, l.id
 limit %(limit)s;

-- name: find_delivery
-- Finds one delivery by its number alone: day by day of those that are there, each by its key.
with recursive day as (
  (select d.event_day from relevo.notification_deliveries d order by d.event_day limit 1)
  union all
  select n.event_day
    from day y
    cross join lateral (select d.event_day from relevo.notification_deliveries d
                         where d.event_day > y.event_day order by d.event_day limit 1) n
)
select x.event_day, x.id, x.notification_event_id as event_id, x.installation_id, x.event_type, x.provider, x.project, x.lane, x.at_most_once,
       x.status, x.attempt_count, x.lapse_count, x.created_at, x.updated_at, x.last_attempt_at, x.completed_at, x.last_error_code,
       x.last_error_message, x.provider_ticket_id, x.provider_receipt_id, x.token_version, now() as now,
       (select i.owner from relevo.device_installations i where i.installation_id = x.installation_id) as owner
  from day y
  cross join lateral (select d.* from relevo.notification_deliveries d where d.event_day = y.event_day and d.id = %(id)s) x
 limit 1;

-- name: read_delivery_wait
-- Tells of an open or sent delivery when it is due, who holds it and until when, and when its receipt is asked for.
select q.due_at, c.claimed_at, c.worker_id, c.leased_until, w.look_at as receipt_at, p.breaker, p.breaker_reason, p.probe_at, p.rest_until,
       exists (select from relevo.event_repeats r where r.event_id = %(event_id)s and r.held_at is not null) as repeats_held,
       (select s.paused_reason from relevo.cycle_state s where s.cycle = 'dispatch' and s.source = '' and s.paused_at is not null) as paused_reason,
       (select s.paused_reason from relevo.cycle_state s where s.cycle = 'receipt' and s.source = '' and s.paused_at is not null) as receipts_paused
  from (select 1) as one
  left join lateral (select q.due_at from relevo.due_chunks q
                      where %(open)s and q.event_id = %(event_id)s and %(id)s = any (q.ids) limit 1) q on true
  left join lateral (select c.claimed_at, c.worker_id, c.leased_until from relevo.claims c
                      where %(open)s and %(event_id)s = any (c.events) and %(id)s = any (c.ids) limit 1) c on true
  left join lateral (select w.look_at from relevo.awaited_receipts w
                      where not %(open)s and w.project = %(project)s and w.sent_at between %(sent_at)s::timestamptz - interval '1 minute'
                        and %(sent_at)s::timestamptz + interval '1 minute' and %(id)s = any (w.ids) limit 1) w on true
  left join relevo.projects p on p.project = %(project)s;

-- name: list_delivery_requests
-- Lists the requests in which one delivery was sent, oldest first: those of the days around its making and its last attempt.
select r.id, r.journalled_at, r.answered_at, r.outcome, r.worker_id, cardinality(r.ids) as pushes
  from relevo.push_requests r
 where r.request_day in (%(first_day)s::date, %(first_day)s::date + 1, %(last_day)s::date - 1, %(last_day)s::date)
   and r.journalled_at between %(since)s and %(until)s
   and %(id)s = any (r.ids)
 order by r.journalled_at
 limit 50;

-- name: list_delivery_redrives
-- Lists when dead letters of a delivery's event were sent anew, and by whom, if that was noted.
select i.at, i.actor as by from relevo.project_incidents i
 where i.project = %(project)s and i.what = 'redriven' and i.at >= %(since)s and %(event_id)s = any (i.events)
 order by i.at
 limit 20;

-- name: list_failed_attempts
-- Lists what went wrong with one delivery, attempt by attempt, as far as it is kept.
select f.n, f.at, f.attempt, f.found_by, f.became, f.error_code, f.error_message, f.request_id
  from relevo.failed_attempts f
 where f.event_day = %(event_day)s and f.delivery_id = %(id)s
 order by f.n;

-- name: list_late_tickets
-- Lists the tickets of one delivery that came after its claim was lost.
select t.ticket_id, t.recorded_at from relevo.late_tickets t
 where t.event_day = %(event_day)s and t.delivery_id = %(id)s order by t.recorded_at limit 20;

-- name: list_event_deliveries_by_status
-- Lists deliveries of one event, by installation, after a given one if asked, of one status if asked, out of so many that are looked at.
select x.id, x.installation_id, x.project, x.status, x.attempt_count, x.created_at, x.last_attempt_at, x.completed_at, x.last_error_code,
       (select i.owner from relevo.device_installations i where i.installation_id = x.installation_id) as owner
  from (select d.*
          from relevo.notification_deliveries d
         where d.event_day = %(event_day)s and d.notification_event_id = %(event_id)s and d.installation_id > coalesce(%(after)s::uuid, '00000000-0000-0000-0000-000000000000')
         order by d.installation_id
         limit %(look_at)s) x
 where %(status)s::text is null or x.status = %(status)s
 order by x.installation_id
 limit %(limit)s;

-- name: list_failed_of_event
-- Lists the dead letters of one event, by their number, after a given one if asked.
select d.id, d.installation_id, d.project, d.status, d.attempt_count, d.created_at, d.last_attempt_at, d.completed_at, d.last_error_code,
       (select i.owner from relevo.device_installations i where i.installation_id = d.installation_id) as owner
  from (select l.event_day, l.delivery_id from relevo.dead_letters l
         where l.event_day = %(event_day)s and l.event_id = %(event_id)s and l.delivery_id > coalesce(%(after)s::bigint, 0)
         order by l.delivery_id
         limit %(limit)s) l
  cross join lateral (select d.* from relevo.notification_deliveries d where d.event_day = l.event_day and d.id = l.delivery_id offset 0) d
 order by d.id;

-- name: find_end_of_look
-- Finds the installation at which a look at so many of an event's deliveries ended, if there were as many.
select d.installation_id
  from relevo.notification_deliveries d
 where d.event_day = %(event_day)s and d.notification_event_id = %(event_id)s and d.installation_id > coalesce(%(after)s::uuid, '00000000-0000-0000-0000-000000000000')
 order by d.installation_id
offset %(look_at)s - 1
 limit 1;

-- name: list_owners
-- Lists owners by their names from a given one on, that one left out if asked, along their index, with a bounded number of their phones counted.
with recursive who as (
  (select i.owner, 1 as n from relevo.device_installations i
    where i.owner is not null and i.owner >= %(first)s and (i.owner > %(first)s or not %(behind)s) order by i.owner limit 1)
  union all
  select f.owner, w.n + 1
    from who w
    cross join lateral (select i.owner from relevo.device_installations i where i.owner > w.owner order by i.owner limit 1) f
   where w.n < %(limit)s
)
select w.owner, p.phones, p.receiving
  from who w
  cross join lateral (select count(*)::int as phones, count(*) filter (where relevo.may_receive(x))::int as receiving
                        from (select i.* from relevo.device_installations i where i.owner = w.owner limit %(most)s) x) p
 order by w.n;

-- name: list_owners_of
-- Lists the owners of given installations, those without one left out.
select i.installation_id, i.owner from relevo.device_installations i
 where i.installation_id = any (%(installations)s::uuid[]) and i.owner is not null;

-- name: list_phones_of_owner
-- Lists the installations of an owner, newest first.
select i.installation_id from relevo.device_installations i where i.owner = %(owner)s order by i.seq desc limit %(limit)s;

-- name: list_phones
-- Lists given installations, newest first; of a token its first letters and a mark by which two can be told apart.
select i.installation_id, i.owner, i.provider, i.project, i.platform, i.locale, i.permission, i.push_capable, i.active, i.opt_outs, i.registered_at,
       i.updated_at, i.invalidated_at, i.handled_before, i.for_news, i.token_version,
       coalesce(substring(i.token from '\[(.{1,4})'), left(i.token, 4)) || '…' || substr(md5(i.token), 1, 4) as token,
       relevo.may_receive(i) as receives, relevo.why_not_allowed(i) as why_not, now() as now
  from relevo.device_installations i
 where i.installation_id = any (%(installations)s::uuid[])
 order by i.seq desc;

-- name: list_preferences_of_phones
-- Lists what some installations ask for.
select p.installation_id, p.name, p.enabled, p.rubro_prefix, p.tipo, p.region, p.monto_min, p.monto_max, p.moneda, p.keywords, p.topics, p.updated_at
  from unnest(%(installations)s::uuid[]) as i(installation_id)
  join relevo.notification_preferences p on p.installation_id = i.installation_id
 order by p.installation_id, p.name
 limit %(limit)s;

-- name: list_changes_since
-- Tells of some installations what was registered, disabled, changed or given to its owner after an event had begun to go out, and when.
select i.installation_id, e.audience, e.fanout_started_at as went_out_at,
       case when i.registered_at > e.fanout_started_at then i.registered_at end as registered_at,
       case when i.invalidated_at > e.fanout_started_at then i.invalidated_at end as disabled_at,
       case when i.updated_at > e.fanout_started_at then i.updated_at end as changed_at,
       case when i.owner_since > e.fanout_started_at then i.owner_since end as owner_since,
       (select max(p.updated_at) from relevo.notification_preferences p
         where p.installation_id = i.installation_id and p.updated_at > e.fanout_started_at) as preferences_at
  from relevo.notification_events e
  join relevo.device_installations i on i.installation_id = any (%(installations)s::uuid[])
 where e.id = %(event_id)s and e.fanout_started_at is not null;

-- name: list_history
-- Lists the deliveries to some installations, newest first, before a given one if asked, with what they said.
select x.id, x.event_day, x.installation_id, x.event_id, x.event_type, x.status, x.attempt_count, x.created_at, x.last_attempt_at, x.completed_at,
       x.last_error_code, left(coalesce(nullif(e.title, ''), e.body), 200) as title,
       case when e.title <> '' then left(e.body, 200) end as body
  from unnest(%(installations)s::uuid[]) as i(installation_id)
  cross join lateral (select d.id, d.event_day, d.installation_id, d.notification_event_id as event_id, d.event_type, d.status, d.attempt_count,
                             d.created_at, d.last_attempt_at, d.completed_at, d.last_error_code
                        from relevo.notification_deliveries d
                       where d.installation_id = i.installation_id and d.id < coalesce(%(before)s::bigint, 9223372036854775807)
                       order by d.id desc
                       limit %(limit)s) x
  left join lateral (select e.title, e.body from relevo.notification_events e where e.id = x.event_id) e on true
 order by x.id desc
 limit %(limit)s;

-- name: count_left_out
-- Counts, of a bounded number of phones that are meant (the named ones, those of named owners, or the newest of all), those that may not get a
-- push, or opted out of its category, by the reason; those that may have none.
with meant as materialized (
  (select i from relevo.device_installations i where %(everyone)s and not i.for_news order by i.seq desc limit %(most)s)
  union all
  (select n.i from unnest(%(installations)s::uuid[]) as u(id)
    cross join lateral (select i from relevo.device_installations i where i.installation_id = u.id offset 0) n
   limit %(most)s)
  union all
  (select n.i from unnest(%(owners)s::text[]) as u(owner)
    cross join lateral (select i from relevo.device_installations i where i.owner = u.owner order by i.seq desc limit %(most)s) n
   limit %(most)s)
)
select case when not relevo.may_receive(m.i) then relevo.why_not_allowed(m.i) when %(category)s::text = any ((m.i).opt_outs) then 'opted_out' end as reason,
       count(*)::int as phones
  from meant m
 group by 1
 order by 2 desc, 1
 limit 20;

-- name: list_named
-- Lists installations that an event names, a bounded number of them.
select a.installation_id from relevo.event_audience a where a.event_id = %(event_id)s order by a.installation_id limit %(most)s;

-- name: find_event
-- Finds an event by its number, archived ones included.
select e.id, e.event_type, e.event_key, left(e.title, 200) as title, false as archived from relevo.notification_events e where e.id = %(event_id)s
union all
select k.event_id, k.event_type, k.event_key, '', true from relevo.event_keys k where k.event_id = %(event_id)s;

-- name: find_events_by_key
-- Finds events by their key alone, type by type along their index, archived and hidden ones included.
with recursive kind as (
  (select e.event_type from relevo.notification_events e order by e.event_type limit 1)
  union all
  select n.event_type
    from kind k
    cross join lateral (select e.event_type from relevo.notification_events e
                         where e.event_type > k.event_type order by e.event_type limit 1) n
), kept as (
  (select e.event_type from relevo.event_keys e order by e.event_type limit 1)
  union all
  select n.event_type
    from kept k
    cross join lateral (select e.event_type from relevo.event_keys e where e.event_type > k.event_type order by e.event_type limit 1) n
)
(select e.id, e.event_type, e.event_key, left(e.title, 200) as title, false as archived
   from (select k.event_type from kind k limit 1000) k
   join relevo.notification_events e
     on e.event_type = k.event_type and e.event_key in (%(key)s, relevo.hidden_key(k.event_type, %(key)s))
  limit %(limit)s)
union all
(select e.event_id, e.event_type, e.event_key, '', true
   from (select k.event_type from kept k limit 1000) k
   join relevo.event_keys e on e.event_type = k.event_type and e.event_key in (%(key)s, relevo.hidden_key(k.event_type, %(key)s))
  limit %(limit)s);

-- name: find_phone
-- Finds an installation by its id or its push token.
select i.installation_id, i.owner, i.project from relevo.device_installations i
 where i.installation_id = %(installation_id)s::uuid
union
select i.installation_id, i.owner, i.project from relevo.device_installations i where i.token = %(token)s;

-- name: find_owner
-- Tells whether an owner has phones, or events of their own.
select %(owner)s::text as owner
 where exists (select from relevo.device_installations i where i.owner = %(owner)s)
    or exists (select from relevo.event_owners o where o.owner = %(owner)s);

-- name: find_tenders
-- Finds tenders by their code, namespace by namespace along their index, with the events that told of them.
with recursive space as (
  (select l.namespace from relevo.licitaciones l order by l.namespace limit 1)
  union all
  select n.namespace
    from space s
    cross join lateral (select l.namespace from relevo.licitaciones l where l.namespace > s.namespace order by l.namespace limit 1) n
)
select l.namespace, l.external_id, left(l.nombre, 200) as nombre, e.id, e.event_type, e.state, coalesce(p.deliveries, '{}') as deliveries
  from (select s.namespace from space s limit 1000) s
  join relevo.licitaciones l on l.namespace = s.namespace and l.external_id = %(code)s
  left join lateral (select e.id, e.event_type, e.state from relevo.notification_events e
                      where e.licitacion_id = l.id order by e.id desc limit %(limit)s) e on true
  left join lateral (select jsonb_object_agg(s.status, s.n) as deliveries
                       from (select x.status, sum(x.deliveries) as n
                               from (select g.status, g.deliveries from relevo.event_progress g where g.event_id = e.id
                                     union all
                                     select d.status, d.deliveries from relevo.event_progress_deltas d where d.event_id = e.id) x
                              group by x.status having sum(x.deliveries) <> 0) s) p on true
 limit %(limit)s;

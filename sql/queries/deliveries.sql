-- name: list_deliveries
-- Lists deliveries of a state, newest first, from a place on, out of a bounded number that it looks at; returns how many and where the last stands.
with looked as materialized (
  select x.*
    from ((select d.event_day, d.id, d.notification_event_id as event_id, d.installation_id, d.event_type, d.provider, d.project, d.lane, d.status,
         d.attempt_count, d.created_at, d.updated_at, d.last_attempt_at, d.completed_at, d.last_error_code, d.last_error_message, d.id::text as place
             from relevo.notification_deliveries d
            where d.event_day = %(day)s::date and d.id < %(number)s::bigint
            order by d.event_day desc, d.id desc limit %(look_at)s)
          union all
          (select d.event_day, d.id, d.notification_event_id as event_id, d.installation_id, d.event_type, d.provider, d.project, d.lane, d.status,
         d.attempt_count, d.created_at, d.updated_at, d.last_attempt_at, d.completed_at, d.last_error_code, d.last_error_message, d.id::text as place
             from relevo.notification_deliveries d
            where d.event_day < coalesce(%(day)s::date, 'infinity')
            order by d.event_day desc, d.id desc limit %(look_at)s)) x
   order by x.event_day desc, x.id desc
   limit %(look_at)s
)
select n.looked_at, n.last_day, n.last_place, f.*
  from (select count(*)::int as looked_at, (array_agg(l.event_day order by l.event_day, l.id))[1] as last_day,
               (array_agg(l.place order by l.event_day, l.id))[1] as last_place from looked l) n
  left join (select l.* from looked l where %(state)s::text is null or l.status = %(state)s order by l.event_day desc, l.id desc limit %(limit)s) f on true
 order by f.event_day desc, f.id desc;

-- name: list_deliveries_of_event
-- Lists those of one event in a state, and if asked to one installation alone, by installation, from a place on; bounded as the list of all.
with looked as materialized (
  select d.event_day, d.id, d.notification_event_id as event_id, d.installation_id, d.event_type, d.provider, d.project, d.lane, d.status,
         d.attempt_count, d.created_at, d.updated_at, d.last_attempt_at, d.completed_at, d.last_error_code, d.last_error_message, d.installation_id::text as place
    from relevo.notification_deliveries d
   where d.event_day = (select e.event_day from relevo.notification_events e where e.id = %(event_id)s) and d.notification_event_id = %(event_id)s
     and d.installation_id >= coalesce(%(installation_id)s::uuid, '00000000-0000-0000-0000-000000000000')
     and d.installation_id <= coalesce(%(installation_id)s::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
     and d.installation_id > coalesce(%(number)s::uuid, '00000000-0000-0000-0000-000000000000')
   order by d.event_day, d.notification_event_id, d.installation_id
   limit %(look_at)s
)
select n.looked_at, n.last_day, n.last_place, f.*
  from (select count(*)::int as looked_at, (array_agg(l.event_day order by l.installation_id desc))[1] as last_day,
               (array_agg(l.place order by l.installation_id desc))[1] as last_place from looked l) n
  left join (select l.* from looked l where %(state)s::text is null or l.status = %(state)s order by l.installation_id limit %(limit)s) f on true
 order by f.installation_id;

-- name: list_deliveries_of_phone
-- Lists those to one installation in a state, newest first, from a place on; bounded as the list of all.
with looked as materialized (
  select d.event_day, d.id, d.notification_event_id as event_id, d.installation_id, d.event_type, d.provider, d.project, d.lane, d.status,
         d.attempt_count, d.created_at, d.updated_at, d.last_attempt_at, d.completed_at, d.last_error_code, d.last_error_message, d.id::text as place
    from relevo.notification_deliveries d
   where d.installation_id = %(installation_id)s and d.id < coalesce(%(number)s::bigint, 9223372036854775807)
   order by d.id desc
   limit %(look_at)s
)
select n.looked_at, n.last_day, n.last_place, f.*
  from (select count(*)::int as looked_at, (array_agg(l.event_day order by l.id))[1] as last_day,
               (array_agg(l.place order by l.id))[1] as last_place from looked l) n
  left join (select l.* from looked l where %(state)s::text is null or l.status = %(state)s order by l.id desc limit %(limit)s) f on true
 order by f.id desc;

-- name: list_event_deliveries
-- Lists deliveries of one event, by installation, after a given one if asked.
select d.id, d.installation_id, d.provider, d.project, d.lane, d.status, d.attempt_count, d.created_at, d.last_attempt_at, d.completed_at,
       d.last_error_code, d.last_error_message,
       coalesce((select jsonb_agg(jsonb_build_object('at', to_char(f.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'attempt', f.attempt,
                                                     'found_by', f.found_by, 'status', f.became, 'error_code', f.error_code,
                                                     'error_message', f.error_message) order by f.n)
                   from relevo.failed_attempts f where f.event_day = d.event_day and f.delivery_id = d.id), '[]') as failed_attempts
  from relevo.notification_deliveries d
 where d.event_day = (select e.event_day from relevo.notification_events e where e.id = %(event_id)s)
   and d.notification_event_id = %(event_id)s
   and d.installation_id > coalesce(%(after)s::uuid, '00000000-0000-0000-0000-000000000000')
 order by d.installation_id
 limit %(limit)s;

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

-- name: find_end_of_look
-- Finds the installation at which a look at so many of an event's deliveries ended, if there were as many.
select d.installation_id
  from relevo.notification_deliveries d
 where d.event_day = %(event_day)s and d.notification_event_id = %(event_id)s and d.installation_id > coalesce(%(after)s::uuid, '00000000-0000-0000-0000-000000000000')
 order by d.installation_id
offset %(look_at)s - 1
 limit 1;

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

-- name: list_failures_of
-- Lists what went wrong with some deliveries, attempt by attempt, as far as it is kept: the first twenty of each.
select u.id, jsonb_agg(jsonb_build_object('at', to_char(f.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'attempt', f.attempt, 'found_by', f.found_by,
                                          'status', f.became, 'error_code', f.error_code, 'error_message', f.error_message) order by f.n) as failed_attempts
  from unnest(%(days)s::date[], %(ids)s::bigint[]) as u(event_day, id)
  cross join lateral (select f.* from relevo.failed_attempts f where f.event_day = u.event_day and f.delivery_id = u.id offset 0) f
 group by u.id;

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
       x.last_error_message, x.provider_ticket_id, x.provider_receipt_id, x.token_version, x.opened_at, x.opened_action, now() as now,
       (select i.owner from relevo.device_installations i where i.installation_id = x.installation_id) as owner,
       (select s.at from relevo.silent_pushes s where s.event_id = x.notification_event_id and s.delivery_id = x.id) as silent_at
  from day y
  cross join lateral (select d.* from relevo.notification_deliveries d where d.event_day = y.event_day and d.id = %(id)s) x
 limit 1;

-- name: read_delivery_wait
-- Returns when an open or sent delivery is due, whether it waits because of quiet hours and in which zone, who holds it and until when, and when
-- its receipt is due.
select q.due_at, coalesce(q.is_quiet, false) as is_quiet,
       case when q.is_quiet then (select relevo.zone_of(i.timezone, i.quiet, i.owner_quiet, i.project) from relevo.device_installations i
                                   where i.installation_id = q.phone) end as quiet_zone,
       c.claimed_at, c.worker_id, c.leased_until, w.look_at as receipt_at, p.breaker, p.breaker_reason, p.probe_at, p.rest_until,
       exists (select from relevo.event_repeats r where r.event_id = %(event_id)s and r.held_at is not null) as repeats_held,
       (select s.paused_reason from relevo.cycle_state s where s.cycle = 'dispatch' and s.source = '' and s.paused_at is not null) as paused_reason,
       (select s.paused_reason from relevo.cycle_state s where s.cycle = 'receipt' and s.source = '' and s.paused_at is not null) as receipts_paused
  from (select 1) as one
  left join lateral (select q.due_at, q.installations[array_position(q.ids, %(id)s)] as phone, relevo.waits_for_quiet(q) as is_quiet
                       from relevo.notification_events e cross join lateral relevo.chunks_of(e) q
                      where %(open)s and e.id = %(event_id)s and %(id)s = any (q.ids) limit 1) q on true
  left join lateral (select c.claimed_at, c.worker_id, c.leased_until from relevo.claims c
                      where %(open)s and %(event_id)s = any (c.events) and %(id)s = any (c.ids) limit 1) c on true
  left join lateral (select w.look_at from relevo.awaited_receipts w
                      where not %(open)s and w.project = %(project)s and w.sent_at between %(sent_at)s::timestamptz - interval '1 minute'
                        and %(sent_at)s::timestamptz + interval '1 minute' and %(id)s = any (w.ids) limit 1) w on true
  left join relevo.projects p on p.project = %(project)s;

-- name: list_delivery_requests
-- Lists the requests in which one delivery was sent, oldest first: those of the days around its making and its last attempt.
select r.id, r.journalled_at, r.answered_at, r.outcome, r.worker_id, cardinality(r.ids) as pushes
  from (values (%(since)s::timestamptz, (%(first_day)s::date + 2)::timestamp at time zone 'UTC'),
               (greatest(%(since)s::timestamptz, (greatest(%(first_day)s::date + 2, %(last_day)s::date - 1))::timestamp at time zone 'UTC'),
                (%(last_day)s::date + 1)::timestamp at time zone 'UTC')) as w(since, before)
  cross join lateral (select * from relevo.push_requests r
                       where r.request_day in (%(first_day)s::date, %(first_day)s::date + 1, %(last_day)s::date - 1, %(last_day)s::date)
                         and r.journalled_at >= w.since and r.journalled_at < w.before and r.journalled_at <= %(until)s::timestamptz) r
 where %(id)s = any (r.ids)
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

-- name: group_dead_letters
-- Groups the newest dead letters by error, project and type: how many, since when, how many past their deadline, and an example of each.
with piece as materialized (
  select l.event_day, l.delivery_id, l.event_id, l.project, l.error_code, l.died_at
    from relevo.dead_letters l
   order by l.event_day desc, l.delivery_id desc
   limit %(look)s
)
select g.*, now() as now, sum(g.deliveries) over ()::int as looked,
       (select d.last_error_message from relevo.notification_deliveries d where d.event_day = g.days[1] and d.id = g.ids[1]) as example
  from (select coalesce(p.error_code, 'none') as error_code, p.project, coalesce(e.event_type, '') as event_type, count(*)::int as deliveries,
               count(*) filter (where e.deadline_at <= now())::int as too_late, min(p.died_at) as first_at, max(p.died_at) as last_at,
               (array_agg(p.event_day order by p.event_day desc, p.delivery_id desc))[1:3] as days,
               (array_agg(p.delivery_id order by p.event_day desc, p.delivery_id desc))[1:3] as ids,
               (array_agg(p.event_id order by p.event_day desc, p.delivery_id desc))[1:3] as events
          from piece p
          left join relevo.notification_events e on e.id = p.event_id
         group by 1, 2, 3
         order by 4 desc, 1, 2, 3
         limit 200) g
 order by g.deliveries desc, g.error_code, g.project, g.event_type;

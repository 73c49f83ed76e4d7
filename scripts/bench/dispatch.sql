-- name: load_completed
-- Makes deliveries that were sent and confirmed, by the number.
insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, status, attempt_count,
                                            completed_at, provider_ticket_id, token_version)
select (now() at time zone 'UTC')::date, 1000000000 + n / 100000, lpad(to_hex(n), 32, '0')::uuid, 'past', 'ok', 1, now(), 'ticket-' || n, 1
  from generate_series(1, %(count)s::int) n;

-- name: loop_table
-- Makes the plain loop's one table anew: rows with a status, a time and a mark, and an index over what is due.
drop table if exists public.loop_deliveries;
create table public.loop_deliveries (
  id bigint generated always as identity primary key, installation_id uuid not null, event_id bigint not null, status text not null default 'pending',
  attempt_count int not null default 0, next_attempt_at timestamptz default now(), locked_by uuid, provider_ticket_id text,
  last_attempt_at timestamptz, completed_at timestamptz, created_at timestamptz not null default now(), updated_at timestamptz not null default now(),
  unique (event_id, installation_id)
);
create index on public.loop_deliveries (created_at, id) where status in ('pending', 'retryable') and completed_at is null;

-- name: loop_load
-- Queues a delivery to every phone there, of the newest event.
insert into public.loop_deliveries (installation_id, event_id)
select i.installation_id, (select max(e.id) from relevo.notification_events e) from relevo.device_installations i;

-- name: loop_lock
-- The plain loop's claim: a batch is locked by a mark, oldest first.
with due as (
  select d.id from public.loop_deliveries d
   where d.status in ('pending', 'retryable') and d.completed_at is null and d.next_attempt_at <= now() and d.locked_by is null
   order by d.created_at, d.id limit %(limit)s for update skip locked
), locked as (
  update public.loop_deliveries d set locked_by = %(token)s, updated_at = now() from due where d.id = due.id
  returning d.id, d.installation_id, d.event_id
)
select l.id, i.token, e.title, e.body
  from locked l
  join relevo.device_installations i on i.installation_id = l.installation_id
  join relevo.notification_events e on e.id = l.event_id;

-- name: loop_update
-- The plain loop's outcome: one update per delivery.
update public.loop_deliveries
   set status = 'sent', attempt_count = attempt_count + 1, locked_by = null, next_attempt_at = null, provider_ticket_id = %(ticket)s,
       last_attempt_at = now(), updated_at = now()
 where id = %(id)s;

-- name: take_unguarded
-- The ceiling's claim: the oldest chunks leave the queue, and their deliveries are looked at as a claim does; what their events say comes along.
with taken as (
  delete from relevo.due_chunks q
   where q.id = any (array(select o.id from relevo.due_chunks o
                            where o.project = %(project)s and o.lane = %(lane)s and o.due_at <= coalesce(%(now)s::timestamptz, now())
                            order by o.due_at, o.id limit %(chunks)s))
  returning q as chunk
)
select l.event_day, l.event_id, l.event_type, l.at_most_once, l.attempt_count, l.lapse_count, l.deadline_at, l.seconds_left, l.created_at,
       l.ids, l.installations, l.tokens, l.versions, l.platforms, l.locales, l.obstacles, l.quiet,
       null as lease_ms, l.events, l.once, l.deadlines, l.seconds, e.id, e.title, e.body, e.data, e.push
  from relevo.look_up_phones(array(select t.chunk from taken t), coalesce(%(now)s::timestamptz, now()), null) l
  left join lateral (select e.id, e.title, e.body, e.data::text, e.push::text from relevo.notification_events e where e.id = l.event_id) e on true;

-- name: write_unguarded
-- The ceiling's outcome: rows are written by their key.
update relevo.notification_deliveries d
   set status = 'sent', attempt_count = d.attempt_count + 1, lapse_count = 0, last_attempt_at = coalesce(%(now)s::timestamptz, now()),
       completed_at = null, updated_at = coalesce(%(now)s::timestamptz, now()), last_error_code = null, last_error_message = null,
       provider_ticket_id = a.ticket_id, token_version = a.token_version
  from unnest(%(days)s::date[], %(ids)s::bigint[], %(tickets)s::text[], %(versions)s::int[]) as a(event_day, id, ticket_id, token_version)
 where d.event_day = a.event_day and d.id = a.id;

-- name: finish_unguarded
-- Ends what the ceiling sent of the newest event, for nobody awaits its receipts.
update relevo.notification_deliveries d set status = 'unconfirmed', completed_at = now()
 where d.status = 'sent' and d.notification_event_id = (select max(e.id) from relevo.notification_events e);

-- name: stop_projects
-- Makes projects with an open breaker, each with something urgent that has been due for an hour.
with added as (
  insert into relevo.projects (project, filled_at, breaker, breaker_reason, breaker_by, breaker_since, probe_at, trips)
  select 'stopped-' || n, now(), 'open', 'HTTP 401', 'request', now(), now() + interval '1 hour', 1 from generate_series(1, %(many)s) n
)
insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error, ids,
                               installations)
select 'stopped-' || n, 'urgent', now() - interval '1 hour', current_date, 0, 'notice', now(), 1, 0, true, array[n], array[gen_random_uuid()]
  from generate_series(1, %(many)s) n;

-- name: add_projects
-- Makes projects that sent nothing so far.
insert into relevo.projects (project, filled_at) select u.project, now() from unnest(%(projects)s::text[]) as u(project) on conflict do nothing;

-- name: hold_projects
-- Locks projects until the transaction ends.
select from relevo.projects p where p.project = any (%(projects)s::text[]) for update;

-- name: is_sent
-- Tells whether a push of an event was sent.
select exists (select from relevo.notification_deliveries d
                where d.event_day = any (array[(now() at time zone 'UTC')::date, (now() at time zone 'UTC')::date - 1])
                  and d.notification_event_id = %(event_id)s and d.status in ('sent', 'ok'));

-- name: refresh
-- Lets the planner see what was loaded.
analyze relevo.device_installations, relevo.due_chunks, relevo.notification_deliveries;

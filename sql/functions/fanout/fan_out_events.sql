-- Fans out small personal events, which the caller has picked and locked, in one go; only to phones of their project if they have one. Returns
-- the events and phones of the pushes if they are watched, how many deliveries are above a cap, and no row if today's month is sealed.
-- Steps: find the phones, hold to caps, insert deliveries, queue them in chunks, mark the events as fanned, count, write what is above a cap.
create or replace function relevo.fan_out_events(of_events bigint[], watched boolean, given_at timestamptz)
  returns table (created int, events bigint[], installations uuid[], held jsonb)
  language plpgsql volatile
as $$
#variable_conflict use_column
declare
  at timestamptz := relevo.now(given_at);
  today date := (at at time zone 'UTC')::date;
  made_of record;
begin
  perform relevo.ensure_partitions(today, 1);
  if relevo.hold_open(array[today]) = '{}' then
    return;
  end if;
  with targets as materialized (
    select * from relevo.small_targets(of_events)
  ), weighed as materialized (
    select u.event_id, u.installation_id, u.cap
      from (select array_agg(t.event_id order by t.place) as events, array_agg(t.installation_id order by t.place) as phones
              from targets t where t.is_under_caps and t.installation_id is not null) w
      cross join lateral (select relevo.reserve_caps_together(w.events, w.phones, at) as caps where w.events is not null offset 0) c
      cross join lateral unnest(w.events, w.phones, c.caps) as u(event_id, installation_id, cap)
     where u.cap is not null
  ), above as materialized (
    select t.*, w.cap, coalesce((select c.over = 'digest' from relevo.caps c where c.id = w.cap), false) as is_digested
      from weighed w join targets t on t.event_id = w.event_id and t.installation_id = w.installation_id
  ), skipped as (
    insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, provider, project, lane, at_most_once,
                                                deadline_at, created_at, inbox_id, status, completed_at, updated_at, last_error_code, last_error_message)
    select today, w.event_id, w.installation_id, w.event_type, w.provider, w.project, w.lane, w.at_most_once, w.deadline_at, now(), w.inbox_id,
           'skipped', at, at, 'capped', relevo.why_capped(w.cap)
      from above w where not w.is_digested order by w.place
    returning notification_event_id
  ), made as (
    insert into relevo.notification_deliveries (event_day, notification_event_id, installation_id, event_type, provider, project, lane, at_most_once, deadline_at, created_at, inbox_id)
    select today, t.event_id, t.installation_id, t.event_type, t.provider, t.project, t.lane, t.at_most_once, t.deadline_at, now(), t.inbox_id from targets t
     where t.installation_id is not null and not exists (select from above w where w.event_id = t.event_id and w.installation_id = t.installation_id)
     order by t.place
    returning id, notification_event_id, installation_id, event_type, project, lane, created_at, inbox_id, (select e.wording is not null from relevo.notification_events e where e.id = notification_event_id) as is_worded -- such wait apart from those that every worker can claim
  ), queued as (
    insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error, ids, installations, inboxes, events)
    select m.project, m.lane, at, today, case when min(m.notification_event_id) = max(m.notification_event_id) then min(m.notification_event_id) else 0 end, m.event_type,
           m.created_at, 0, 0, false, array_agg(m.id), array_agg(m.installation_id), case when count(m.inbox_id) > 0 then array_agg(m.inbox_id) end,
           case when min(m.notification_event_id) < max(m.notification_event_id) then array_agg(m.notification_event_id) end
      from (select m.*, (row_number() over (partition by m.project, m.lane, m.event_type, m.is_worded, m.created_at order by m.id) - 1) / 100 as piece from made m) m
     group by m.project, m.lane, m.event_type, m.is_worded, m.created_at, m.piece order by min(m.id)
    returning id, events
  ), placed as (
    select u.event_id, array_agg(distinct q.id) as chunks from queued q cross join lateral unnest(q.events) as u(event_id) group by u.event_id
  ), counted as materialized (
    select t.event_id, count(t.installation_id)::int as deliveries from targets t group by t.event_id
  ), fanned as (
    update relevo.notification_events e
       set state = 'fanned', event_day = today, fanout_started_at = at, fanout_finished_at = at, updated_at = at,
           fanout_upto = u.seq, fanout_cursor = u.seq, targets_selected = c.deliveries, deliveries_created = c.deliveries, queued_in = p.chunks
      from counted c
      left join placed p on p.event_id = c.event_id
      cross join (select coalesce(max(i.seq), 0) as seq from relevo.device_installations i) u
     where e.id = c.event_id
  ), missed as ( -- owners without a phone find it in their inbox
    update relevo.event_owners o
       set inbox_place = nextval('relevo.delivery_ids'), inbox_project = coalesce((select e.project from relevo.notification_events e where e.id = o.event_id), '')
     where o.event_id = any (of_events)
       and not exists (select from targets t where t.event_id = o.event_id and t.owner = o.owner and t.installation_id is not null)
  ), progress as (
    insert into relevo.event_progress_deltas (event_id, status, deliveries)
    select m.notification_event_id, 'pending', count(*)::int from made m group by m.notification_event_id
    union all
    select k.notification_event_id, 'skipped', count(*)::int from skipped k group by k.notification_event_id
  )
  select m.n + a.n as created, m.events, m.installations, a.n as capped, a.digested into made_of
    from (select count(*)::int as n, case when watched then array_agg(m.notification_event_id) end as events,
                 case when watched then array_agg(m.installation_id) end as installations from made m) m
    cross join (select count(*)::int as n, jsonb_agg(w) filter (where w.is_digested) as digested from above w) a;
  created := made_of.created;
  events := made_of.events;
  installations := made_of.installations;
  held := case when made_of.capped > 0 then jsonb_build_object('capped', made_of.capped) end;
  if made_of.digested is not null then
    select jsonb_build_object('capped', made_of.capped - sum((c.held ->> 'left_to_digests')::int), 'left_to_digests', sum((c.held ->> 'left_to_digests')::int)) into held
      from (select w.event_id, array_agg(w.installation_id) as phones, array_agg(w.provider) as providers, array_agg(w.project) as projects,
                   array_agg(w.cap) as caps, array_agg(w.inbox_id) as inboxes
              from jsonb_to_recordset(made_of.digested) as w(event_id bigint, cap int, installation_id uuid, provider text, project text, inbox_id bigint)
             group by w.event_id
             order by w.event_id) a
      cross join lateral (select * from relevo.notification_events e where e.id = a.event_id offset 0) e
      cross join lateral (select relevo.write_capped(e, at, a.phones, a.providers, a.projects, a.caps, a.inboxes) as held offset 0) c;
  end if;
  return next;
end
$$;

revoke all on function relevo.fan_out_events from public;

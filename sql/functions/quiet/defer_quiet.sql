-- Lets what was just queued of small personal events wait for the end of their phones' quiet hours.
create or replace function relevo.defer_quiet(of_events bigint[], at timestamptz) returns void
  language sql volatile
as $$
  with waiting as materialized (
    select q.id, d.dues, t.quiet_spread_s, e.deadline_at
      from unnest(of_events) as o(event_id)
      cross join lateral (select * from relevo.due_chunks q where q.event_id = o.event_id offset 0) q
      cross join lateral (select * from relevo.notification_events e where e.id = o.event_id offset 0) e
      left join lateral (select t.quiet_spread_s from relevo.event_types t where t.event_type = e.event_type offset 0) t on true
      cross join lateral (select relevo.quiet_dues(e, q.installations, at) as dues
                           where (select exists (select from relevo.quiet_defaults)) or exists (
                             select from unnest(q.installations) as u(id)
                               cross join lateral (select i.quiet, i.owner_quiet from relevo.device_installations i where i.installation_id = u.id offset 0) i
                              where i.quiet is not null or i.owner_quiet is not null)) d
     where d.dues is not null
  ), taken as (
    delete from relevo.due_chunks q using waiting w where q.id = w.id returning q.*, w.dues, w.quiet_spread_s, w.deadline_at
  )
  insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                                 ids, installations, inboxes)
  select t.project, t.lane,
         case when u.due > at then relevo.spread_quiet(u.due, (array_agg(u.phone))[1], t.quiet_spread_s, t.deadline_at) else t.due_at end,
         t.event_day, t.event_id, t.event_type, t.created_at, t.attempt_count, t.lapse_count, t.had_error, array_agg(u.id), array_agg(u.phone),
         case when count(u.inbox_id) > 0 then array_agg(u.inbox_id) end
    from taken t cross join lateral unnest(t.ids, t.installations, t.dues, t.inboxes) as u(id, phone, due, inbox_id)
   group by t.id, t.project, t.lane, t.due_at, t.event_day, t.event_id, t.event_type, t.created_at, t.attempt_count, t.lapse_count, t.had_error,
            t.quiet_spread_s, t.deadline_at, u.due
$$;

revoke all on function relevo.defer_quiet from public;

-- Lets what was just queued of small personal events wait for the end of their phones' quiet hours.
create or replace function relevo.defer_quiet(of_events bigint[], at timestamptz) returns void
  language sql volatile
as $$
  with waiting as materialized (
    select q.id as chunk, e.id as event_id, u.id, u.phone, u.inbox_id, d.dues[u.n] as due, t.quiet_spread_s, e.deadline_at
      from unnest(of_events) as o(event_id)
      cross join lateral (select * from relevo.notification_events e where e.id = o.event_id offset 0) e
      left join lateral (select t.quiet_spread_s from relevo.event_types t where t.event_type = e.event_type offset 0) t on true
      cross join lateral (select * from relevo.chunks_of(e) offset 0) q
      cross join lateral (select array_agg(u.id) as ids, array_agg(u.phone) as phones, array_agg(u.inbox_id) as inboxes
                            from unnest(q.ids, q.installations, q.inboxes, q.events) as u(id, phone, inbox_id, event_id)
                           where coalesce(u.event_id, e.id) = e.id) its
      cross join lateral (select relevo.quiet_dues(e, its.phones, at) as dues
                           where (select exists (select from relevo.quiet_defaults)) or exists (
                             select from unnest(its.phones) as u(id)
                               cross join lateral (select i.quiet, i.owner_quiet from relevo.device_installations i where i.installation_id = u.id offset 0) i
                              where i.quiet is not null or i.owner_quiet is not null)) d
      cross join lateral unnest(its.ids, its.phones, its.inboxes) with ordinality as u(id, phone, inbox_id, n)
     where d.dues[u.n] > at
  ), taken as (
    delete from relevo.due_chunks q where q.id in (select w.chunk from waiting w) returning q.*
  ), left_due as (
    select count(relevo.put_back(relevo.part_of_chunk(t, array(
      select u.place from unnest(t.ids) with ordinality as u(id, place) where u.id not in (select w.id from waiting w) order by u.place)::int[]))) from taken t
  )
  insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                                 ids, installations, inboxes)
  select t.project, t.lane, relevo.spread_quiet(w.due, (array_agg(w.phone))[1], w.quiet_spread_s, w.deadline_at),
         t.event_day, w.event_id, t.event_type, t.created_at, t.attempt_count, t.lapse_count, t.had_error, array_agg(w.id), array_agg(w.phone),
         case when count(w.inbox_id) > 0 then array_agg(w.inbox_id) end
    from taken t join waiting w on w.chunk = t.id cross join left_due
   group by t.id, t.project, t.lane, t.event_day, w.event_id, t.event_type, t.created_at, t.attempt_count, t.lapse_count, t.had_error,
            w.quiet_spread_s, w.deadline_at, w.due
$$;

revoke all on function relevo.defer_quiet from public;

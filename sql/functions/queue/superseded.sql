-- Returns which deliveries of some chunks relevo.is_superseded by a later event, each by its event and phone. It reads what a phone got once for all chunks:
-- a claim costs the same however many events with a collapse key wait for one phone.
create or replace function relevo.superseded(chunks relevo.due_chunks[]) returns table (event_id bigint, installation_id uuid)
  language plpgsql stable
  set enable_sort = off set enable_bitmapscan = off set enable_seqscan = off set enable_mergejoin = off set enable_hashjoin = on set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
  return query
    with asked as materialized (
      select e.id, e.event_type, e.collapse, e.scheduled_at, u.installation_id, u.inbox_id, least(c.event_day, (e.scheduled_at at time zone 'UTC')::date) - 1 as from_day
        from unnest(chunks) c
        cross join lateral unnest(c.installations, c.inboxes, c.events) as u(installation_id, inbox_id, event_id)
        join lateral (select n.id, n.event_type, n.collapse, n.scheduled_at from relevo.notification_events n
                       where n.id = coalesce(u.event_id, c.event_id) and n.collapse is not null offset 0) e on true
    ), got as materialized (
      select p.installation_id, d.event_day, d.status, d.last_error_code, d.inbox_id, d.event_type, l.id, l.collapse, l.scheduled_at, l.deadline_at
        from (select a.installation_id, min(a.from_day) as from_day from asked a group by a.installation_id) p
        cross join lateral (select d.notification_event_id, d.event_day, d.event_type, d.status, d.last_error_code, d.inbox_id
                              from relevo.notification_deliveries d
                             where d.installation_id = p.installation_id and d.event_day >= p.from_day order by d.id desc limit 1000) d
        cross join lateral (select l.id, l.collapse, l.scheduled_at, l.state, l.deadline_at from relevo.notification_events l
                             where l.id = d.notification_event_id offset 0) l
       where l.collapse is not null and l.state <> 'cancelled'
         and (d.status not in ('expired', 'skipped', 'failed', 'invalid', 'cancelled') or d.last_error_code in ('superseded', 'shadow'))
         and (d.status not in ('pending', 'retryable') or l.deadline_at is null or l.deadline_at > now())
    )
    select distinct a.id, a.installation_id
      from asked a
      join got g on g.installation_id = a.installation_id and g.event_type = a.event_type and g.collapse = a.collapse
     where g.event_day >= a.from_day and (g.scheduled_at, g.id) > (a.scheduled_at, a.id)
       and (a.inbox_id is null or g.inbox_id is null or g.inbox_id = a.inbox_id);
end
$$;

revoke all on function relevo.superseded from public;

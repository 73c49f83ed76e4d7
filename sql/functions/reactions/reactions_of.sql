-- Returns how many pushes of an event were taken by a push service, how many were opened, and in how many inboxes it was read; null where its
-- type asks for none of that.
create or replace function relevo.reactions_of(e relevo.notification_events) returns jsonb
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object(
           'taken', (select coalesce(sum(p.deliveries), 0)::bigint
                       from (select p.status, p.deliveries from relevo.event_progress p where p.event_id = e.id
                             union all
                             select d.status, d.deliveries from relevo.event_progress_deltas d where d.event_id = e.id) p
                      where p.status in ('sent', 'ok', 'unconfirmed')),
           'opened', coalesce(e.opened_count, 0) + r.opened, 'read', coalesce(e.read_count, 0) + r.read)
    from (select coalesce(sum(r.count) filter (where r.kind = 'opened'), 0)::bigint as opened,
                 coalesce(sum(r.count) filter (where r.kind = 'read'), 0)::bigint as read
            from relevo.event_reactions r where r.event_id = e.id) r
   where e.opened_count is not null or e.read_count is not null
      or exists (select from relevo.event_types t where t.event_type = e.event_type and t.opens)
$$;

revoke all on function relevo.reactions_of from public;

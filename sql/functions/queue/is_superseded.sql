-- Returns whether a phone has a delivery of a later event of the same type and collapse key: the one that falls due later is the later one. With an
-- inbox only deliveries for that inbox count: what a phone got for its next owner takes no former owner's place. It
-- walks along what the phone got since, newest first, so it costs the same however many phones share a collapse key.
create or replace function relevo.is_superseded(of_event bigint, of_type text, of_collapse text, due_at timestamptz, of_day date, installation uuid,
                                                of_inbox bigint default null)
  returns boolean
  language plpgsql stable
  set enable_sort = off set enable_bitmapscan = off set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
begin
  return exists (
    select from (select d.notification_event_id, d.event_type, d.status, d.last_error_code, d.inbox_id from relevo.notification_deliveries d
                  where d.installation_id = installation and d.event_day >= least(of_day, (due_at at time zone 'UTC')::date) - 1 -- the earlier may have fanned out after it
                  order by d.id desc limit 1000) d
      cross join lateral (select l.id, l.collapse, l.scheduled_at, l.state, l.deadline_at from relevo.notification_events l
                           where l.id = d.notification_event_id offset 0) l
     where (of_inbox is null or d.inbox_id is null or d.inbox_id = of_inbox) and d.event_type = of_type and l.collapse = of_collapse and (l.scheduled_at, l.id) > (due_at, of_event) and l.state <> 'cancelled'
       -- one that this phone will not be shown takes nobody's place; one that was itself superseded has a later one behind it
       and (d.status not in ('expired', 'skipped', 'failed', 'invalid', 'cancelled') or d.last_error_code in ('superseded', 'shadow'))
       and (d.status not in ('pending', 'retryable') or l.deadline_at is null or l.deadline_at > now()));
end
$$;

revoke all on function relevo.is_superseded from public;

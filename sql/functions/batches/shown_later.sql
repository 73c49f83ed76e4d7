-- Returns the events of a type with one of some collapse keys that a phone was shown since a day, or will be, of the last thousand that it got. The question that is_superseded asks
-- of one event, for all events of a batch at once: what the phone got for another owner does not count.
create or replace function relevo.shown_later(installation uuid, of_type text, collapses text[], since date, of_inbox bigint)
  returns table (event_id bigint, collapse text, scheduled_at timestamptz)
  language plpgsql stable
  set enable_sort = off set enable_bitmapscan = off set enable_seqscan = off set plan_cache_mode = force_generic_plan -- lookups only
as $$
#variable_conflict use_column
begin
  return query
    select l.id, l.collapse, l.scheduled_at
      from (select d.notification_event_id, d.event_type, d.status, d.last_error_code, d.inbox_id from relevo.notification_deliveries d
             where d.installation_id = installation and d.event_day >= since - 1
             order by d.id desc limit 1000) d
      cross join lateral (select l.id, l.collapse, l.scheduled_at, l.state, l.deadline_at from relevo.notification_events l
                           where l.id = d.notification_event_id offset 0) l
     where (of_inbox is null or d.inbox_id is null or d.inbox_id = of_inbox) and d.event_type = of_type and l.collapse = any (collapses) and l.state <> 'cancelled'
       and (d.status not in ('expired', 'skipped', 'failed', 'invalid', 'cancelled') or d.last_error_code in ('superseded', 'shadow'))
       and (d.status not in ('pending', 'retryable') or l.deadline_at is null or l.deadline_at > now());
end
$$;

revoke all on function relevo.shown_later from public;

-- Lets personal events that wait for the end of quiet hours of these phones fall due now: whoever claims them looks at the hours as they are then.
create or replace function relevo.recheck_quiet(phones uuid[], of_owner text) returns void
  language plpgsql volatile
as $$
declare
  moved int;
begin
  with waiting as materialized (
    select q.* from (select a.event_id from relevo.event_audience a where a.installation_id = any (phones)
                     union
                     select o.event_id from relevo.event_owners o
                      where o.owner = coalesce(of_owner, (select i.owner from relevo.device_installations i where i.installation_id = phones[1]))) e
      cross join lateral (select * from relevo.due_chunks q where q.event_id = e.event_id and q.due_at > now() and q.attempt_count = 0 and q.installations && phones
                            for update skip locked) q
     where not q.had_error or exists (select from relevo.notification_deliveries d
                                       where d.event_day = q.event_day and d.id = q.ids[1] and d.last_error_code = 'quiet_hours')
  ), taken as (
    delete from relevo.due_chunks q using waiting w where q.id = w.id
  )
  insert into relevo.due_chunks (project, lane, due_at, event_day, event_id, event_type, created_at, attempt_count, lapse_count, had_error,
                                 ids, installations, inboxes)
  select w.project, w.lane, now(), w.event_day, w.event_id, w.event_type, w.created_at, w.attempt_count, w.lapse_count, w.had_error, w.ids, w.installations, w.inboxes
    from waiting w;
  get diagnostics moved = row_count;
  if moved > 0 then
    perform relevo.wake('dispatch');
  end if;
end
$$;

revoke all on function relevo.recheck_quiet from public;

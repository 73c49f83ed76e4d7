-- Returns whether a chunk waits for the end of quiet hours, as it was found when the chunk was written: nothing else makes a chunk without an error due later.
create or replace function relevo.waits_for_quiet(q relevo.due_chunks) returns boolean language sql stable
  return (q).due_at > now() and case when (q).had_error then exists (select from relevo.notification_deliveries d
                                                                   where d.event_day = (q).event_day and d.id = (q).ids[1] and d.last_error_code = 'quiet_hours')
                                     else (q).attempt_count = 0 end;

revoke all on function relevo.waits_for_quiet from public;

-- Returns whether an event was handled by the owner of a phone, or everything for the phone was since the event came. Mostly nobody handled anything, which is found out first.
create or replace function relevo.is_handled(e relevo.notification_events, i relevo.device_installations) returns boolean
  language sql stable
  return coalesce((i).handled_before >= (select d.created_at from relevo.notification_deliveries d
                                          where (i).handled_before is not null and d.event_day = (e).event_day and d.notification_event_id = (e).id
                                            and d.installation_id = (i).installation_id), false)
         or (i).owner is not null and (select exists (select from relevo.event_completions))
            and exists (select from relevo.event_completions c where c.event_id = (e).id and c.owner = (i).owner and coalesce(c.project, (i).project) = (i).project);

revoke all on function relevo.is_handled from public;

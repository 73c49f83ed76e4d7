-- Returns of the phones of a slice those that get the event: without whoever got the event that this one follows and, with `step_aside`, without
-- those that have its delivery already. `targets` counts the latter, too.
create or replace function relevo.leave_out_repeats(e relevo.notification_events, of_phones uuid[], of_providers text[], of_projects text[],
    of_hours int[], of_inboxes bigint[], step_aside boolean,
    out targets int, out phones uuid[], out providers text[], out projects text[], out hours int[], out inboxes bigint[])
  language sql stable
as $$
  select count(*), array_agg(u.phone) filter (where not u.is_there), array_agg(u.provider) filter (where not u.is_there),
         array_agg(u.project) filter (where not u.is_there), case when of_hours is not null then array_agg(u.hours) filter (where not u.is_there) end,
         case when of_inboxes is not null then array_agg(u.inbox_id) filter (where not u.is_there) end
    from (select u.*, step_aside and exists (select from relevo.notification_deliveries d
                                              where d.event_day = e.event_day and d.notification_event_id = e.id
                                                and d.installation_id = u.phone offset 0) as is_there
            from unnest(of_phones, of_providers, of_projects, of_hours, of_inboxes) as u(phone, provider, project, hours, inbox_id)
           where not exists (select from relevo.event_followers f
                               join relevo.notification_events o on o.id = f.former_event_id
                               join relevo.notification_deliveries d
                                 on d.event_day = o.event_day and d.notification_event_id = o.id and d.installation_id = u.phone
                              where f.event_id = e.id and (d.status in ('sent', 'ok', 'unconfirmed', 'unknown') or d.last_error_code = 'shadow') offset 0)) u
$$;

revoke all on function relevo.leave_out_repeats from public;

-- Returns an owner's events on phones that belong to another owner now: events that named one phone alone, and reached it while it was the owner's,
-- in one project or in all.
create or replace function relevo.told_on_former_phones(of_owner text, of_project text) returns bigint[]
  language sql stable
as $$
  select array(
    select a.event_id
      from relevo.inboxes b
      join relevo.former_phones f on f.inbox_id = b.id
      join relevo.event_audience a on a.installation_id = f.installation_id
      join relevo.notification_events e on e.id = a.event_id
     where b.owner = of_owner and (of_project is null or b.project = of_project)
       and not exists (select from relevo.event_audience o where o.event_id = a.event_id and o.installation_id <> a.installation_id)
       and exists (select from relevo.notification_deliveries d
                    where d.event_day = e.event_day and d.notification_event_id = e.id and d.installation_id = f.installation_id and d.inbox_id = b.id offset 0))
$$;

revoke all on function relevo.told_on_former_phones from public;

-- Returns whether a phone is still to be told an event that was above a cap: it is for this phone or its owner as they are now, they did not handle it since, and want
-- its category.
create or replace function relevo.wants_extra(i relevo.device_installations, of_event bigint) returns boolean
  language sql stable
as $$
  select exists (
    select from (select e.id, e.event_day, e.audience, e.category, e.project from relevo.notification_events e where e.id = of_event offset 0) e
      cross join lateral (select d.created_at from relevo.notification_deliveries d
                           where d.event_day = e.event_day and d.notification_event_id = e.id and d.installation_id = (i).installation_id offset 0) d
     where (e.project is null or e.project = (i).project) and ((i).handled_before >= d.created_at) is not true
       and relevo.unwanted((i).opt_outs, (i).refused, (i).accepted, e.category, relevo.category_rule(e.category)) is null
       and not exists (select from relevo.event_completions c where c.event_id = of_event and c.owner = (i).owner and coalesce(c.project, (i).project) = (i).project)
       and (e.audience <> 'installations'
            or exists (select from relevo.event_audience a where a.event_id = of_event and a.installation_id = (i).installation_id)
            or exists (select from relevo.event_owners o where o.event_id = of_event and o.owner = (i).owner
                         and (i).project = coalesce(e.project, relevo.project_of_owners(), (i).project))))
$$;

revoke all on function relevo.wants_extra from public;

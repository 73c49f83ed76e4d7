-- Returns the phones of small personal events, in the order of the events, and whether caps hold for each event. An event that reaches nobody
-- stands there once, without a phone.
create or replace function relevo.small_targets(of_events bigint[])
  returns table (place bigint, event_id bigint, event_type text, lane text, at_most_once boolean, deadline_at timestamptz, installation_id uuid, provider text,
                 project text, owner text, inbox_id bigint, is_under_caps boolean)
  language sql stable
as $$
  select g.place, e.id as event_id, e.event_type, e.lane, e.at_most_once, e.deadline_at, t.installation_id, t.provider, t.project, t.owner, t.inbox_id,
         (select exists (select from relevo.caps)) and relevo.is_under_caps(e)
    from unnest(of_events) with ordinality as g(id, place)
    cross join (select relevo.project_of_owners() as owners_in offset 0) w -- of events without project
    cross join lateral (select * from relevo.notification_events e where e.id = g.id offset 0) e
    cross join lateral (select relevo.category_rule(e.category) as rule offset 0) c
    left join lateral (
      select (n.phone).installation_id, (n.phone).provider, relevo.sending_project((n.phone).provider, (n.phone).project, (n.phone).part) as project,
             (n.phone).owner, coalesce(n.inbox_id, (n.phone).inbox_id) as inbox_id -- a phone that is named is meant with the owner it had then
        from (select p.phone, a.inbox_id from relevo.event_audience a
                cross join lateral (select i as phone from relevo.device_installations i where i.installation_id = a.installation_id offset 0) p
               where a.event_id = e.id and not (a.inbox_id is null and relevo.had_another_owner(a.installation_id, (p.phone).owner_since, e.created_at))
              union all
              select p.phone, null from relevo.event_owners o
                cross join lateral (select i as phone from relevo.device_installations i where i.owner = o.owner
                                      and i.project = coalesce(e.project, w.owners_in, i.project) offset 0) p
               where o.event_id = e.id) n
       where relevo.may_receive(n.phone) and (e.project is null or (n.phone).project = e.project) and relevo.unwanted((n.phone).opt_outs, (n.phone).refused, (n.phone).accepted, e.category, c.rule) is null
         and not exists (select from relevo.event_followers f -- whoever got what this event follows is not told again
                           join relevo.notification_events o on o.id = f.former_event_id
                           join relevo.notification_deliveries d
                             on d.event_day = o.event_day and d.notification_event_id = o.id and d.installation_id = (n.phone).installation_id
                          where f.event_id = e.id and (d.status in ('sent', 'ok', 'unconfirmed', 'unknown') or d.last_error_code = 'shadow'))) t on true
$$;

revoke all on function relevo.small_targets from public;

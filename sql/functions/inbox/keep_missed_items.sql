-- Copies those of some events that leave, and that found no phone of an owner's, to kept_inbox_items, where their types keep them for longer.
-- The caller holds the lock that excludes forgetting.
create or replace function relevo.keep_missed_items(of_events bigint[]) returns void
  language plpgsql volatile
as $$
declare
  f record;
begin
  select array_agg(o.owner) as owners, array_agg(p.project) as projects, array_agg(o.event_id) as events, array_agg(o.inbox_place) as places into f
    from relevo.event_owners o
    join relevo.notification_events e on e.id = o.event_id
    left join relevo.event_types t on t.event_type = e.event_type
    cross join lateral (select e.project where e.project is not null
                        union select i.project from relevo.device_installations i where i.owner = o.owner and e.project is null and relevo.takes_unscoped(o.owner, i.project)
                        union select 'default' where e.project is null and relevo.takes_unscoped(o.owner, 'default')) p
   where o.event_id = any (of_events) and o.inbox_place is not null and e.state <> 'cancelled' and (e.title <> '' or e.body <> '') and e.batch_id is null
     and coalesce(t.inbox, true) and e.fanout_finished_at > now() - coalesce(t.inbox_days, 90) * interval '1 day';
  if f.owners is null then
    return;
  end if;
  insert into relevo.inboxes (project, owner)
  select distinct u.project, u.owner from unnest(f.projects, f.owners) as u(project, owner)
  on conflict do nothing;
  insert into relevo.kept_inbox_items (inbox_id, event_id, place, at, event_type, category, title, body, data, kept_until, texts)
  select b.id, e.id, u.place, e.fanout_finished_at, e.event_type, e.category, e.title, e.body, e.data,
         e.fanout_finished_at + coalesce(t.inbox_days, 90) * interval '1 day', e.texts
    from unnest(f.owners, f.projects, f.events, f.places) as u(owner, project, event_id, place)
    join relevo.inboxes b on b.owner = u.owner and b.project = u.project
    join relevo.notification_events e on e.id = u.event_id
    left join relevo.event_types t on t.event_type = e.event_type
  on conflict do nothing;
end
$$;

revoke all on function relevo.keep_missed_items from public;

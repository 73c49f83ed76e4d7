-- Copies what is in a range of blocks of a month that leaves, and stays in inboxes for longer, to kept_inbox_items; returns how many items. The same
-- range again changes nothing. An item stands where its event came first, whichever of an owner's phones that was.
create or replace function relevo.keep_inbox_items(of_month date, from_block bigint, blocks bigint, given_at timestamptz) returns int
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  at timestamptz := relevo.now(given_at);
  f record;
  many int;
begin
  perform relevo.lock_alone('keep_inbox_items'); -- whoever is being forgotten meanwhile is gone first
  execute format($sql$
    select array_agg(g.owner) as owners, array_agg(g.alone) as phones, array_agg(g.project) as projects, array_agg(g.event_id) as events,
           array_agg(g.place) as places, array_agg(g.at) as ats, array_agg(g.came_by) as came_by
      from (select coalesce(b.owner, i.owner) as owner, case when b.id is null and i.owner is null then i.installation_id end as alone,
                   coalesce(b.project, i.project) as project, d.notification_event_id as event_id, min(d.id) as place, min(d.created_at) as at,
                   case when count(*) = 1 then (array_agg(d.installation_id))[1] end as came_by
              from relevo.%I d
              left join relevo.event_types t on t.event_type = d.event_type
              left join relevo.inboxes b on b.id = d.inbox_id
              left join relevo.device_installations i on i.installation_id = d.installation_id
             where d.ctid >= $1 and d.ctid < $2 and d.created_at > $3 - coalesce(t.inbox_days, 90) * interval '1 day' and coalesce(t.inbox, true)
               and (b.id is not null or d.inbox_id is null and d.created_at >= coalesce(i.owner_since, '-infinity') and not i.for_news)
             group by 1, 2, 3, 4) g$sql$, 'notification_deliveries' || to_char(of_month, '_YYYY_MM'))
  into f using format('(%s,0)', from_block)::tid, format('(%s,0)', from_block + blocks)::tid, at;
  insert into relevo.inboxes (project, owner, installation_id)
  select distinct u.project, u.owner, u.phone from unnest(f.projects, f.owners, f.phones) as u(project, owner, phone)
  on conflict do nothing;
  insert into relevo.kept_inbox_items as k (inbox_id, event_id, place, at, event_type, category, title, body, data, installation_id, kept_until, texts)
  select b.id, e.id, u.place, u.at, e.event_type, e.category, e.title, e.body, e.data, u.came_by,
         u.at + coalesce(t.inbox_days, 90) * interval '1 day', e.texts
    from unnest(f.owners, f.phones, f.projects, f.events, f.places, f.ats, f.came_by) as u(owner, phone, project, event_id, place, at, came_by)
    join relevo.inboxes b on b.owner = u.owner and b.project = u.project or b.installation_id = u.phone
    join relevo.notification_events e on e.id = u.event_id and e.state <> 'cancelled' and (e.title <> '' or e.body <> '') and e.event_type <> 'relevo.news' and e.batch_id is null
    left join relevo.event_types t on t.event_type = e.event_type
  on conflict (inbox_id, event_id) do update
     set place = least(k.place, excluded.place), at = least(k.at, excluded.at),
         installation_id = case when k.installation_id = excluded.installation_id then k.installation_id end;
  get diagnostics many = row_count;
  return many;
end
$$;

revoke all on function relevo.keep_inbox_items from public;

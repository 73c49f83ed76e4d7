-- Returns a page of what is kept of an owner, of one kind: {"owner": "user-7", "project": …, "kind": "deliveries", "after": "123", "limit": 1000};
-- `next` goes on from there. Kinds are installations, events, deliveries, digests, marks, kept_items, choices and rules. Push tokens are shortened.
create or replace function relevo.export_owner(asked jsonb) returns jsonb
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  of_owner text := asked ->> 'owner';
  of_project text := asked ->> 'project';
  past bigint;
  most int;
  page record;
begin
  perform relevo.check_owner_question(asked, array['kind', 'after', 'limit']);
  perform relevo.check_number(asked, 'limit', 1, 1000, true);
  if asked ->> 'after' !~ '^[0-9]{1,18}$' then
    perform relevo.refuse('after must be the `next` of another page');
  end if;
  past := coalesce((asked ->> 'after')::bigint, 0);
  most := coalesce((asked ->> 'limit')::numeric::int, 1000);
  case coalesce(asked ->> 'kind', '')
    when 'installations' then
      select jsonb_agg(relevo.exported_phone(p.i) order by (p.i).seq) as items, max((p.i).seq) as last into page
        from (select i from relevo.device_installations i where i.owner = of_owner and (of_project is null or i.project = of_project) and i.seq > past
               order by i.seq limit most) p;
    when 'events' then
      select jsonb_agg(relevo.exported_event(p.e) order by (p.e).id) as items, max((p.e).id) as last into page
        from (select e from relevo.event_owners o join relevo.notification_events e on e.id = o.event_id
               where o.owner = of_owner and o.event_id > past and (of_project is null or coalesce(e.project, relevo.project_of_owners()) = of_project) order by o.event_id limit most) p;
    when 'deliveries' then
      select jsonb_agg(relevo.exported_delivery(p.d) order by (p.d).id) as items, max((p.d).id) as last into page
        from (select d.d from (select i.installation_id, i.inbox_id, coalesce(i.owner_since, '-infinity') - interval '1 microsecond' as since
                                 from relevo.device_installations i where i.owner = of_owner and (of_project is null or i.project = of_project)
                               union all
                               select f.installation_id, f.inbox_id, 'infinity' from relevo.inboxes b join relevo.former_phones f on f.inbox_id = b.id
                                where b.owner = of_owner and (of_project is null or b.project = of_project)
                                  and not exists (select from relevo.device_installations i where i.installation_id = f.installation_id and i.inbox_id = f.inbox_id)) i
                cross join lateral (select d from relevo.notification_deliveries d where d.installation_id = i.installation_id and d.id > past
                                       and relevo.is_item_of(i.inbox_id, d.inbox_id, d.created_at, i.since) -- the rest is another owner's
                                     order by d.id limit most) d
               order by (d.d).id limit most) p;
    when 'digests' then -- what digests told, by the number of the digest's event
      select jsonb_agg(to_jsonb(p) order by p.event_id, p.installation_id) as items, max(p.event_id) as last into page
        from (select c.event_id, i.installation_id, g.closed_at as at, c.total, array(select c.event_id - o.before from unnest(c.offsets) with ordinality as o(before, n) order by o.n) as events
                from (select i.installation_id, i.seq, i.inbox_id, i.project, coalesce(i.owner_since, '-infinity') - interval '1 microsecond' as since
                        from relevo.device_installations i where i.owner = of_owner and (of_project is null or i.project = of_project)
                      union all
                      select i.installation_id, i.seq, b.id, b.project, 'infinity'
                        from relevo.inboxes b join relevo.former_phones f on f.inbox_id = b.id
                        join relevo.device_installations i on i.installation_id = f.installation_id and i.inbox_id is distinct from b.id
                       where b.owner = of_owner and (of_project is null or b.project = of_project)) i
                join relevo.digests g on g.event_id > past and g.project = i.project
                join relevo.digest_contents c on c.event_id = g.event_id and c.seq = i.seq and relevo.is_item_of(i.inbox_id, c.inbox_id, g.made_at, i.since)
               order by c.event_id fetch first most rows with ties) p;
    when 'marks' then
      select jsonb_agg(to_jsonb(p) - 'inbox_id' order by p.place) as items, max(p.place) as last into page
        from (select b.project, m.* from relevo.inboxes b join relevo.inbox_marks m on m.inbox_id = b.id
               where b.owner = of_owner and (of_project is null or b.project = of_project) and m.place > past order by m.place limit most) p;
    when 'kept_items' then
      select jsonb_agg(to_jsonb(p) - 'inbox_id' order by p.place) as items, max(p.place) as last into page
        from (select b.project, k.* from relevo.inboxes b join relevo.kept_inbox_items k on k.inbox_id = b.id
               where b.owner = of_owner and (of_project is null or b.project = of_project) and k.place > past order by k.place limit most) p;
    when 'choices' then
      select jsonb_agg(to_jsonb(p) - 'words_digest' order by p.id) as items, max(p.id) as last into page
        from (select c.*, w.words from relevo.consents c
                left join relevo.consent_words w on w.owner = c.owner and w.project = c.project and w.digest = c.words_digest
               where c.owner = of_owner and (of_project is null or c.project = of_project) and c.id > past
               order by c.id limit most) p;
    when 'rules' then
      select jsonb_agg(to_jsonb(r) || jsonb_build_object('quiet', relevo.exported_hours(r.quiet)) order by r.project) as items, null::bigint as last into page
        from relevo.owner_rules r where r.owner = of_owner and (of_project is null or r.project in (of_project, ''));
    else
      perform relevo.refuse('kind must be installations, events, deliveries, digests, marks, kept_items, choices or rules');
  end case;
  return jsonb_build_object('items', coalesce(page.items, '[]'), 'next', case when jsonb_array_length(page.items) >= most then page.last::text end);
end
$$;

revoke all on function relevo.export_owner from public;
